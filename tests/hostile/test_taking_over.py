"""An administrator takes a node over from an original agent, and a tenant tries to profit."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from e2e.gpu_cluster import USER, WRITES
from hostile.forged_marks import forge_pod
from hostile.original_plugin import NvidiaPlugin, OriginalPlugin
from hostile.tenancy import GPUS, SIGNATURE, Tenancy, gpu_of, make_pod, marks_of, on
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster
RESOURCE, UNITS = "aliyun.com/gpu-mem", 90
NVIDIA = "nvidia.com/gpu"
TRUST = "/api/v1/namespaces/kube-system/configmaps/slicewise-trust"
AGREES, LIES = GPUS[1], GPUS[3]


@pytest.fixture
def original(tenancy: Tenancy) -> Iterator[Tenancy]:
    """The node has an original agent in place of ours, which comes back in the end."""
    node = tenancy.node.node
    tenancy.node.stop_agent()
    plugin = OriginalPlugin(node.device_plugins, node.folder / "dev", RESOURCE, UNITS)
    plugin.register()
    try:
        wait_until(lambda: offered(tenancy) == UNITS, 30, lambda: f"offers {offered(tenancy)}")
        for name, marked, given in (("agrees", AGREES, AGREES), ("lies", GPUS[2], LIES)):
            plugin.next.append(given)
            made = forge_pod(name, "gpushare", node.name, marked, nodeName=node.name)
            tenancy.run(tenancy.tenant, made)
        plugin.close()
        yield tenancy
    finally:
        plugin.close()
        set_takeover(tenancy, "{}")
        tenancy.serve()


def test_only_what_an_original_agent_really_gave_is_signed_and_only_once(
    original: Tenancy,
) -> None:
    who = original.tenant
    wait_until(lambda: seconds_old(original) > 1, 10, lambda: "the pods are too young")
    began = write_time()
    set_takeover(original, json.dumps({"began": began, "ended": None}))
    mark = original.cluster.audit_mark()

    original.node.start_agent()
    who.wait("agrees", lambda pod: SIGNATURE in marks_of(pod), 60)
    set_takeover(original, json.dumps({"began": began, "ended": write_time()}))
    node = original.node.node.name
    who.create(forge_pod("late", "gpushare", node, GPUS[0], nodeName=node))
    for name in ("agrees", "lies"):
        who.end(name)

    for name, starts in (("agrees", 2), ("lies", 2), ("late", 1)):
        original.wait_decided(who, name, starts)
    assert original.devices(who, "agrees") == [{AGREES.device}] * 2
    assert original.devices(who, "lies") == [{LIES.device}]
    assert original.devices(who, "late") == []
    assert original.refusals(who, "lies")
    assert [name for name in patched(original, mark) if name != "gpu"] == ["agrees"]


def test_pods_of_nvidias_plugin_are_recorded_with_the_gpus_that_they_have(
    tenancy: Tenancy,
) -> None:
    node, who = tenancy.node.node, tenancy.tenant
    tenancy.node.stop_agent()
    # No agent was ever here: where one is, the extender chooses the GPUs of pods without a record.
    tenancy.node.withdraw()
    plugin = NvidiaPlugin(node.device_plugins, node.folder / "dev", GPUS)
    plugin.register()
    try:
        wait_until(lambda: offered(tenancy, NVIDIA) == len(GPUS), 30, lambda: "not offered")
        before = make_pod("before", {NVIDIA: 1}, nodeName=node.name)
        tenancy.run(who, before)
        (given,) = tenancy.devices(who, "before")
        plugin.close()
        wait_until(lambda: seconds_old(tenancy) > 1, 10, lambda: "the pod is too young")
        set_takeover(tenancy, json.dumps({"began": write_time(), "ended": None}))
        tenancy.node.start_agent()

        # The kubelet names the UUID that it gave, and the extender signs it.
        held = gpu_of(who.wait("before", lambda pod: SIGNATURE in marks_of(pod), 60))
        assert {held.device} == given
        # The node needs no drain: all other GPUs are there for pods that come now.
        later = [make_pod(f"later-{at}", {NVIDIA: 1}, **on(node.name)) for at in range(3)]
        found = [gpu_of(pod) for pod in tenancy.run(who, *later)]
        assert {held, *found} == set(GPUS)
        assert tenancy.devices(who, "before") == [given]
    finally:
        plugin.close()
        set_takeover(tenancy, "{}")
        tenancy.serve()


def offered(tenancy: Tenancy, resource: str = RESOURCE) -> int:
    """How many units the node has of the original agent's resource."""
    return int(tenancy.node.node_object()["status"]["allocatable"].get(resource, "0"))


def set_takeover(tenancy: Tenancy, text: str) -> None:
    """What the administrator says of the take-over."""
    with tenancy.plane.api() as api:
        api.patch(TRUST, {"data": {"takeover": text}})


def write_time() -> str:
    """Now, as the ConfigMap has it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_old(tenancy: Tenancy) -> float:
    """How long ago the youngest pod was made, by whole seconds."""
    made = [pod["metadata"]["creationTimestamp"] for pod in tenancy.tenant.pods()]
    return int(time.time()) - max(datetime.fromisoformat(each).timestamp() for each in made)


def patched(tenancy: Tenancy, mark: int) -> list[str]:
    """The pods that the extender wrote since a mark."""
    return [
        event["objectRef"]["name"]
        for event in list(tenancy.plane.audit_events())[mark:]
        if event["user"]["username"] == USER
        and event["verb"] in WRITES
        and event["objectRef"]["resource"] == "pods"
    ]
