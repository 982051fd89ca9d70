"""gpu-manager's library makes itself known on its pod's socket."""

import asyncio
import struct
import threading

import grpc
import grpc.aio
import pytest

from nodeagent.living import live
from slicewise.kubelet.codec import delimited
from slicewise.kubelet.sockets import socket_address
from slicewise.nodeagent.limits.vcuda import find_pids
from slicewise.nodeagent.usage.cgroups import CgroupRef

FORK = {"nvidia.com/vcuda-core": 20, "nvidia.com/vcuda-memory": 256}
ID = "f00d" * 16
BEEF = "beef" * 16
OTHER = "00000000-0000-4000-8000-000000000000"


class Containers:
    """A runtime that knows whose container every id is."""

    def __init__(self, **owners):
        self.owners = owners

    async def find_container(self, identity):
        return self.owners.get(identity)


async def register(folder, *, uid="", container="", identity=""):
    """What the library says of itself."""
    claim = b"".join(
        delimited(at, text.encode())
        for at, text in ((1, "0000:01:00.0"), (2, uid), (3, container), (4, identity))
        if text
    )
    async with grpc.aio.insecure_channel(socket_address(folder / "vcuda.sock")) as channel:
        await channel.unary_unary("/vcuda.VCUDAService/RegisterVDevice")(claim, timeout=10)


def serve(root, act, **facts):
    """What the act returns, given a granted pod and its folder."""
    for pid in (41, 42, 43, 44):
        (root / "proc" / str(pid)).mkdir(parents=True)

    async def scene(made):
        async with made.running() as agent:
            pod = made.place(FORK, (0,))
            groups = (
                f"/kubepods/pod{pod.uid}/{ID}",
                "/user.slice",
                f"/kubepods/pod{OTHER}/{ID}",
                f"/kubepods/pod{OTHER}/{BEEF}/{ID}",
            )
            for pid, group in enumerate(groups, 41):
                (root / "proc" / str(pid) / "cgroup").write_text(f"4:memory:{group}\n")
            agent.vcuda_sockets._proc = root / "proc"
            agent.vcuda_sockets._runtime = Containers(**{ID: (pod.uid, "c0"), BEEF: ("x", "c0")})
            made.agent_sockets = agent.vcuda_sockets
            await made.kubelet.admit(pod)
            await made.start(pod)
            return await act(made, pod, made.root / "vm" / pod.uid)

    return live(root, scene, **facts)


def test_container_that_registers_by_its_id_finds_its_limits_and_pids(tmp_path):
    async def act(scene, pod, folder):
        await register(folder, uid=pod.uid, identity=ID)
        return [(folder / ID / name).read_bytes() for name in ("vcuda.config", "pids.config")]

    config, pids = serve(tmp_path, act)

    assert len(config) == 8240
    assert struct.unpack("<i", pids) == (41,)


def test_container_that_registers_by_its_name_is_found_as_well(tmp_path):
    async def act(scene, pod, folder):
        await register(folder, container="c0", identity=ID)
        return (folder / "c0" / "pids.config").read_bytes()

    assert struct.unpack("<i", serve(tmp_path, act)) == (41,)


@pytest.mark.parametrize(
    "claim",
    [
        {"identity": BEEF},
        {"container": "c0", "identity": BEEF},
        {"container": "c0", "identity": "f00d"},
        {"identity": "unknown"},
        {"identity": "../../../etc"},
        {"identity": ""},
        {"container": "../c0"},
        {"container": "other"},
    ],
    ids=[
        "of-another-pod",
        "of-another-pod-by-name",
        "part-of-an-id",
        "of-nobody",
        "leaves-the-folder",
        "empty",
        "name-leaves",
        "no-such-name",
    ],
)
def test_claim_that_is_not_the_pods_own_is_refused_and_writes_nothing(tmp_path, claim):
    async def act(scene, pod, folder):
        before = sorted(path.name for path in folder.rglob("*"))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await register(folder, **claim)
        assert sorted(path.name for path in folder.rglob("*")) == before
        return refused.value.code()

    assert serve(tmp_path, act) is grpc.StatusCode.INVALID_ARGUMENT


def test_processes_that_register_together_share_looks_at_the_host(tmp_path):
    looks = []

    async def act(scene, pod, folder):
        sockets = scene.agent_sockets
        write = sockets._write_pids
        sockets._write_pids = lambda *about: (looks.append(about), write(*about))
        claims = [register(folder, identity=ID) for _ in range(100)]
        await asyncio.gather(*claims)
        return (folder / ID / "pids.config").read_bytes()

    assert struct.unpack("<i", serve(tmp_path, act)) == (41,)
    assert 1 <= len(looks) <= 20


def test_flood_of_claims_leaves_the_agents_other_work_its_threads(tmp_path):
    async def act(scene, pod, folder):
        held = threading.Event()
        scene.agent_sockets._write_pids = lambda *_: held.wait(30)
        claims = [asyncio.ensure_future(register(folder, identity=ID)) for _ in range(100)]
        await asyncio.sleep(0.1)
        try:
            return await asyncio.wait_for(asyncio.to_thread(lambda: "done"), 10)
        finally:
            held.set()
            await asyncio.gather(*claims)

    assert serve(tmp_path, act) == "done"


def test_socket_comes_back_with_the_agent_and_goes_with_the_pod(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = scene.place(FORK, (0,))
            socket = scene.root / "vm" / pod.uid / "vcuda.sock"
            await scene.kubelet.admit(pod)
            await scene.start(pod)
            first = socket.is_socket()
        stopped = socket.exists()
        async with scene.running():
            await scene.until(socket.is_socket)
            scene.delete(pod)
            await scene.until(lambda: not socket.parent.exists())
        return first, stopped

    assert live(tmp_path, act) == (True, False)


def test_process_that_ends_while_it_is_looked_at_is_passed_over(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "self").mkdir()

    assert list(find_pids(tmp_path, CgroupRef(OTHER, ID))) == []
