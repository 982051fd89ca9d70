import asyncio
import json
from json import dumps

import grpc
import grpc.aio
import pytest

from slicewise.kubelet.codec import delimited, varint
from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.runtime import GivenDevices, RuntimeClient, read_devices, supports_cdi

VISIBLE = "NVIDIA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("name", "version", "switch", "cdi"),
    [
        ("containerd", "v2.3.4", None, True),
        ("containerd", "2.0.0", False, False),
        ("containerd", "1.7.20", None, False),
        ("containerd", "1.7.20", True, True),
        ("containerd", "1.6.20~ds1", True, False),
        ("cri-o", "1.30.2", None, True),
        ("cri-o", "1.22.0", None, False),
        ("docker", "25.0", None, False),
        ("containerd", "unknown", None, False),
    ],
)
def test_cdi_is_known_by_runtime_version_and_switch(name, version, switch, cdi):
    assert supports_cdi(name, version, switch) is cdi


def pair(key, value):
    return delimited(1, key.encode()) + delimited(2, value.encode())


class FakeRuntime:
    """Answers as containerd does, with one pod of an ended and a running container."""

    def __init__(self, service="runtime.v1.RuntimeService", config=None):
        self.service, self.config = service, {"enableCDI": True} if config is None else config

    async def version(self, _request, _call):
        return delimited(1, b"0.1.0") + delimited(2, b"containerd") + delimited(3, b"v1.7.3")

    async def status(self, _request, _call):
        return delimited(2, pair("config", json.dumps(self.config)))

    async def sandboxes(self, request, _call):
        assert b"uid-1" in request
        boxes = [delimited(1, b"old") + b"\x20\x01", delimited(1, b"new") + b"\x20\x02"]
        return b"".join(delimited(1, box) for box in boxes)

    async def containers(self, request, _call):
        assert b"new" in request or b"uid-1" in request
        rows = [("init-a", 2), ("init-b", 2), ("main", 1), ("next", 0)]
        return b"".join(
            delimited(
                1,
                delimited(1, name.encode())
                + b"\x30"
                + varint(state)
                + delimited(8, pair("io.kubernetes.container.name", name))
                + delimited(8, pair("io.kubernetes.pod.uid", "uid-1")),
            )
            for name, state in rows
        )

    async def container(self, request, _call):
        if b"main" in request:
            told = {"runtimeSpec": {"process": {"env": ["A=b", f"{VISIBLE}=GPU-1"]}, "linux": {}}}
            return delimited(1, delimited(1, b"main")) + delimited(2, pair("info", dumps(told)))
        code = 0 if b"init-a" in request else 1
        return delimited(1, b"\x38" + varint(code) if code else delimited(1, b"init-a"))

    async def start(self, path):
        unary = grpc.unary_unary_rpc_method_handler
        handlers = {
            "Version": self.version, "Status": self.status, "ListPodSandbox": self.sandboxes,
            "ListContainers": self.containers, "ContainerStatus": self.container,
        }  # fmt: skip
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    self.service, {name: unary(each) for name, each in handlers.items()}
                ),
            )
        )
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        return server


def ask(path, question, **facts):
    async def scene():
        server = await FakeRuntime(**facts).start(path)
        client = RuntimeClient(path)
        try:
            return await question(client)
        finally:
            await client.close()
            await server.stop(None)

    return asyncio.run(asyncio.wait_for(scene(), 30))


@pytest.mark.parametrize(
    "service", ["runtime.v1.RuntimeService", "runtime.v1alpha2.RuntimeService"]
)
def test_runtime_tells_its_name_and_its_switch(tmp_path, service):
    found = ask(tmp_path / "r.sock", RuntimeClient.identify, service=service)

    assert (str(found), found.cdi) == ("containerd v1.7.3", True)


@pytest.mark.parametrize("config", [{}, {"enableCDI": "yes"}, []])
def test_runtime_without_a_readable_switch_goes_by_its_version(tmp_path, config):
    assert ask(tmp_path / "r.sock", RuntimeClient.identify, config=config).cdi is False


def test_finished_are_the_containers_of_the_newest_sandbox_that_ended_well(tmp_path):
    assert ask(tmp_path / "r.sock", lambda client: client.finished("uid-1")) == {"init-a"}


def test_running_are_the_pods_own_containers_that_run_or_are_about_to(tmp_path):
    assert ask(tmp_path / "r.sock", lambda client: client.running("uid-1")) == {"main", "next"}


def test_runtime_tells_what_a_container_was_given_by_its_whole_id(tmp_path):
    async def question(client):
        return [await client.given_devices(each) for each in ("main", "mai", "init-a")]

    assert ask(tmp_path / "r.sock", question) == [GivenDevices("GPU-1"), None, None]


@pytest.mark.parametrize(
    ("spec", "given"),
    [
        pytest.param(
            {
                "process": {"env": [f"{VISIBLE}=0", f"{VISIBLE}=none"]},
                "linux": {"devices": [{"path": "/dev/nvidia3"}, {"path": "/dev/nvidiactl"}]},
            },
            GivenDevices("none", (3,)),
            id="devices",
        ),
        pytest.param({"process": {}}, GivenDevices(), id="nothing"),
        pytest.param({"linux": {"devices": []}}, None, id="no-process"),
        pytest.param("text", None, id="no-object"),
    ],
)
def test_devices_are_read_from_the_containers_specification(spec, given):
    assert read_devices(dumps({"runtimeSpec": spec})) == given


def test_runtime_that_is_not_there_is_named(tmp_path):
    async def scene():
        client = RuntimeClient(tmp_path / "none.sock", seconds=0.2)
        try:
            assert await client.finished("uid-1") is None
            await client.identify()
        finally:
            await client.close()

    with pytest.raises(KubeletError, match=r"container runtime .*none\.sock"):
        asyncio.run(scene())
