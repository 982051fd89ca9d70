"""Processes of real containers, traced as the agent traces those on a GPU."""

from pathlib import Path

import msgspec
import pytest

from e2e.pods import PODS, in_phase, pod
from nodeagent import scenes
from slicewise.diagnose.evidence import StrayOrigin
from slicewise.kube.local_pods import LocalPod, LocalPodBody, read_local_pod
from slicewise.kube.objects import KeyFilter, ObjectReader
from slicewise.model import Node
from slicewise.nodeagent.node_pods import PodIndex, ProcessOwner, read_node_pod
from slicewise.nodeagent.usage.cgroups import ProcessTable
from slicewise.nodeagent.usage.node_usage import UsageSample, measure
from slicewise_testbed.fixtures import REAL

pytestmark = pytest.mark.cluster
# Sleeping so long tells these processes from all others on the machine.
NAPS = {"one": "98101", "two": "98102"}


def sleeper(name: str) -> dict:
    made = pod("any", command=["sleep", NAPS[name]])["spec"]["containers"][0]
    return {**made, "name": name}


def find_pid(seconds: str) -> int:
    """The host's number of the process that sleeps so long."""
    found = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if read_command(path) == b"sleep\0" + seconds.encode() + b"\0"
    ]
    (pid,) = found
    return pid


def read_command(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def read(found: dict) -> LocalPod:
    body = msgspec.json.decode(msgspec.json.encode(found), type=LocalPodBody)
    return read_local_pod(ObjectReader(KeyFilter()), body)


@pytest.fixture(scope="module")
def running(control_plane, real_nodes):
    """A pod of two containers that sleep."""
    made = pod("sleepers", nodeSelector={REAL: "true"})
    made["spec"]["containers"] = [sleeper("one"), sleeper("two")]
    with control_plane.api() as api:
        api.create(PODS, made)
        yield api.wait_for(f"{PODS}/sleepers", in_phase("Running", "Failed"), 90)
        api.delete(f"{PODS}/sleepers")


def test_processes_of_real_containers_are_traced_by_name(running):
    pod = read_node_pod(read(running), Node("real-a"))
    register = PodIndex([pod])
    pids = {name: find_pid(seconds) for name, seconds in NAPS.items()}
    seen = ProcessTable().look(pids.values())

    found = {name: register.find(seen[pid].refs) for name, pid in pids.items()}

    assert found == {name: ProcessOwner(pod, name) for name in NAPS}


def test_a_real_container_on_a_gpu_it_does_not_hold_trespasses(running):
    pod = read_node_pod(read(running), Node("real-a"))
    pid = find_pid(NAPS["two"])
    load = scenes.load(scenes.process(pid), scenes.process(1))
    reading = scenes.reading({"GPU-0": load})
    looked = UsageSample(reading.loads, ProcessTable().look([pid, 1]), 0)
    usage = measure("real-a", [scenes.device(0)], [pod], looked)

    assert [(each.pod.name, each.container) for each in usage.trespasses] == [("sleepers", "two")]
    assert [each.origin for each in usage.strays] == [StrayOrigin.HOST]
