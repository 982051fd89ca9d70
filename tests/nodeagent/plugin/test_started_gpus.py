"""What containers have that others started, as the runtime and the kubelet tell it."""

import asyncio
from dataclasses import replace

import pytest

import builders
from fakes import signing
from nodeagent import scenes
from slicewise.dialects import DEFAULT
from slicewise.dialects.shared.started_gpus import STARTED_GPUS, read_started_gpus
from slicewise.kube.local_pods import LocalContainer, LocalPod
from slicewise.kube.watch import Seen
from slicewise.kubelet.holders import Holder
from slicewise.kubelet.runtime import GivenDevices
from slicewise.model import Phase, TrustPolicy
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.grant_book import GrantBook, StartedGrant
from slicewise.nodeagent.plugin.started_gpus import StartedGpuReader, find_uuids

SHARE = {"aliyun.com/gpu-mem": 4}
WHOLE = {"nvidia.com/gpu": 1}
GPUS = tuple(builders.gpu(at, minor=7 - at) for at in range(4))


class Runtime:
    """A runtime that tells what each container was given, by its id."""

    def __init__(self, **given):
        self.given = given

    async def given_devices(self, identity):
        return self.given.get(identity)


class Kubelet:
    def __init__(self, *holders):
        self.holders = holders

    async def list(self):
        return self.holders


def running(uid: str, limits, **annotations) -> LocalPod:
    facts = {"node": "n0", "phase": Phase.RUNNING, "created": 10}
    pod = builders.pod(limits=limits, uid=uid, name=uid, annotations=annotations, **facts)
    return LocalPod(pod, (LocalContainer("c0", id=f"id-{uid}", running=True),))


def read(*pods: LocalPod, kubelet=None, book=None, **given):
    """The reader after one look during a take-over, and its book."""
    book = book or GrantBook()
    trust = signing.trust(TrustPolicy(takeover_began=100))
    known = NodePods("n0", trust=trust, started=book.slices)
    known.set_gpus([replace(scenes.device(gpu.index), gpu=gpu) for gpu in GPUS])
    known.apply([Seen(pod, new=True) for pod in pods])
    reader = StartedGpuReader(
        known, book, DEFAULT, kubelet=kubelet or Kubelet(), runtime=Runtime(**given)
    )
    asyncio.run(reader.look())
    return reader, book


def test_gpus_of_running_unsigned_containers_are_published_during_a_takeover():
    given = {"id-a": GivenDevices("none", (6,)), "id-b": GivenDevices("GPU-2,1")}
    reader, book = read(running("a", SHARE), running("b", SHARE), **given)

    told = read_started_gpus(reader.annotations(True)[STARTED_GPUS])

    assert told == {"a": {"c0": ("GPU-1",)}, "b": {"c0": ("GPU-2", "GPU-1")}}
    assert book.slices("a", builders.node(gpus=GPUS)) == {"c0": (builders.piece(1, 0, 4096),)}


def test_nothing_is_published_after_the_end_of_a_takeover():
    reader, _ = read(running("a", SHARE), **{"id-a": GivenDevices("GPU-2")})

    assert reader.annotations(False) == {}


def test_runtime_that_tells_nothing_publishes_nothing():
    reader, book = read(running("a", SHARE))

    assert reader.annotations(True) == {}
    assert book.seen("a", "c0") is None


@pytest.mark.parametrize("unit", ["GPU-3", "GPU-3::2"])
def test_gpus_of_nvidias_plugin_are_those_the_kubelet_lists(unit):
    holder = Holder("default", "a", "c0", {"nvidia.com/gpu": frozenset({unit})})
    reader, book = read(running("a", WHOLE), kubelet=Kubelet(holder))

    assert read_started_gpus(reader.annotations(True)[STARTED_GPUS]) == {"a": {"c0": ("GPU-3",)}}
    assert book.seen("a", "c0").gpus == (("GPU-3", 100, 40960),)


def test_gpu_that_is_lost_while_containers_are_looked_at_ends_nothing():
    known = NodePods("n0", trust=signing.trust(TrustPolicy(takeover_began=100)))
    devices = [replace(scenes.device(gpu.index), gpu=gpu) for gpu in GPUS]
    known.set_gpus(devices)
    known.apply([Seen(running(uid, WHOLE), new=True) for uid in ("a", "b")])
    holders = [
        Holder("default", uid, "c0", {"nvidia.com/gpu": frozenset({unit})})
        for uid, unit in (("a", "GPU-2"), ("b", "GPU-3"))
    ]

    class LosingRuntime(Runtime):
        async def given_devices(self, identity):
            known.set_gpus(devices[:3])

    reader = StartedGpuReader(
        known, GrantBook(), DEFAULT, kubelet=Kubelet(*holders), runtime=LosingRuntime()
    )
    asyncio.run(reader.look())

    assert read_started_gpus(reader.annotations(True)[STARTED_GPUS]) == {"a": {"c0": ("GPU-2",)}}


def test_container_that_we_started_is_none_of_them():
    book = GrantBook([StartedGrant("a", "default/a", "c0", (("GPU-0", 0, 4096),))])
    reader, _ = read(running("a", SHARE), book=book, **{"id-a": GivenDevices("GPU-2")})

    assert reader.annotations(True) == {}


@pytest.mark.parametrize("created", [10, 200])
def test_what_we_started_is_published_once_the_pods_record_verifies_no_more(created):
    book = GrantBook([StartedGrant("a", "default/a", "c0", (("GPU-0", 0, 4096),))])
    edited = running("a", SHARE, **{"slicewise.io/signature": "0.0"})
    edited = replace(edited, pod=replace(edited.pod, created=created))
    reader, _ = read(edited, book=book)

    # A pod from before the take-over is believed by its marks until it is signed.
    told = {"a": {"c0": ("GPU-0",)}} if created == 200 else {}
    published = reader.annotations(False).get(STARTED_GPUS, "{}")
    assert read_started_gpus(published) == told


def test_what_is_published_stays_small():
    pods = [running(f"{at:036}", SHARE) for at in range(2000)]
    given = {f"id-{at:036}": GivenDevices("GPU-0") for at in range(2000)}
    reader, _ = read(*pods, **given)

    assert len(reader.annotations(True)[STARTED_GPUS]) <= 64 << 10


@pytest.mark.parametrize(
    ("given", "uuids"),
    [
        (None, ()),
        (GivenDevices("all"), ("GPU-0", "GPU-1", "GPU-2", "GPU-3")),
        (GivenDevices("void"), ()),
        (GivenDevices("GPU-9"), ()),
        (GivenDevices("GPU-0", (4,)), ("GPU-3",)),
    ],
)
def test_device_nodes_are_believed_before_the_variable(given, uuids):
    assert find_uuids(given, GPUS) == uuids
