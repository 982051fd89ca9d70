import asyncio
import copy
from dataclasses import replace

import msgspec
import pytest

from slicewise.kube.dra.slices import (
    DeviceTaint,
    GateOffError,
    SliceClient,
    SliceDevice,
    find_dropped,
    write_spec,
)
from slicewise.kube.errors import RefusedError
from slicewise.model import MiB

DEVICE = SliceDevice("gpu-0", MiB(40960), {"index": 0, "driverVersion": (580, 95, 5)})


class FakeServer:
    """Keeps one slice, and drops fields as a server does whose gates are off."""

    def __init__(self, *dropped):
        self.dropped = dropped
        self.kept = None
        self.sent = []

    async def read(self, call):
        if call.resource == "nodes":
            return msgspec.json.encode({"metadata": {"name": "n0", "uid": "u0"}})
        if self.kept is None:
            raise RefusedError(404, "NotFound", "none")
        return msgspec.json.encode(self.kept)

    async def send(self, call, body):
        self.sent.append((call.verb, dict(call.query)))
        if call.verb == "delete":
            self.kept = None
            return b"{}"
        found = copy.deepcopy(body)
        for device in found["spec"]["devices"]:
            for key in self.dropped:
                device.pop(key, None)
        if not call.query:
            self.kept = found
        return msgspec.json.encode(found)


def publish(server, *devices):
    return asyncio.run(SliceClient(server, "n0").publish(devices))


def test_first_slice_is_tried_without_effect_and_then_written():
    server = FakeServer()

    publish(server, DEVICE)

    assert server.sent == [("create", {"dryRun": "All"}), ("create", {})]
    assert server.kept["metadata"]["ownerReferences"][0]["uid"] == "u0"
    assert server.kept["spec"]["devices"][0]["capacity"]["memory"]["value"] == "40960Mi"


def test_unchanged_devices_are_not_written_again_and_changed_ones_raise_the_generation():
    server = FakeServer()
    publish(server, DEVICE)
    publish(server, DEVICE)
    assert len(server.sent) == 2

    publish(server, SliceDevice("gpu-0", MiB(40960), taints=(DeviceTaint("slicewise.io/x"),)))

    assert server.sent[2:] == [("update", {})]
    assert server.kept["spec"]["pool"]["generation"] == 2


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"taints": (DeviceTaint("slicewise.io/x"),)}, id="healthy-again"),
        pytest.param({"judged": True}, id="no-longer-shared"),
        pytest.param({"attributes": {"nvlinkGroup": "nvlink-0"}}, id="lost-attribute"),
    ],
)
def test_what_a_device_no_longer_says_is_taken_out_of_the_slice(more):
    server = FakeServer()
    publish(server, replace(DEVICE, **more))

    publish(server, DEVICE)
    publish(server, DEVICE)

    assert server.sent[2:] == [("update", {})]
    assert find_dropped(server.kept["spec"], write_spec("n0", [DEVICE], 2)) is None


def test_server_whose_gate_is_off_gets_no_slice_and_the_gate_is_named():
    server = FakeServer("allowMultipleAllocations")

    with pytest.raises(GateOffError, match="DRAConsumableCapacity is off"):
        publish(server, DEVICE)

    assert server.kept is None


def test_slice_is_withdrawn_when_a_taint_is_dropped():
    server = FakeServer()
    publish(server, DEVICE)
    server.dropped = ("taints",)

    with pytest.raises(GateOffError, match="DRADeviceTaints is off"):
        publish(server, SliceDevice("gpu-0", MiB(40960), taints=(DeviceTaint("slicewise.io/x"),)))

    assert server.kept is None


def test_quantities_are_compared_as_numbers():
    sent = write_spec("n0", [DEVICE], 1)
    got = copy.deepcopy(sent)
    got["devices"][0]["capacity"]["memory"]["value"] = "40Gi"
    assert find_dropped(sent, got) is None

    got["devices"][0]["capacity"]["memory"]["value"] = "41Gi"
    assert find_dropped(sent, got) == "spec.devices[0].capacity.memory.value"


def test_shared_device_has_less_room_whole_defaults_and_conditions_for_binding():
    device = SliceDevice("gpu-0", MiB(40960), taken=(30, 40960), judged=True)

    (told,) = write_spec("n0", [device], 1)["devices"]

    assert told["capacity"]["cores"]["value"] == "70"
    assert told["capacity"]["cores"]["requestPolicy"]["default"] == "100"
    assert told["capacity"]["memory"]["value"] == "1Mi"
    assert told["capacity"]["memory"]["requestPolicy"]["default"] == "40960Mi"
    assert told["bindingConditions"] == ["slicewise.io/granted"]
    assert told["bindingFailureConditions"] == ["slicewise.io/refused"]
