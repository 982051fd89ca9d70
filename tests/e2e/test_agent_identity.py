"""One agent on one real node of either runtime: every container gets the GPUs it was allocated."""

import json
import os
import stat
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from e2e.pods import PODS, in_phase
from e2e.signed_records import bind_signed, publish_key
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.ports import free_port
from slicewise_testbed.real_nodes import RealNodes
from slicewise_testbed.runtimes import WITH_CDI, WITHOUT_CDI
from slicewise_testbed.settings import NodeSettings
from slicewise_testbed.testbed import Testbed, wait_until

pytestmark = pytest.mark.cluster
GPUS = 6
SHARED = 4
MEMORY = 8192
SAY = ["sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES $(cd /dev; echo nvidia[0-9]*)"]
FORK = {"nvidia.com/vcuda-core": "10", "nvidia.com/vcuda-memory": "256"}
OWN = {"slicewise.io/cores": "10", "slicewise.io/memory": "256"}
WHOLE = {"nvidia.com/gpu": "1"}


class LiveAgent:
    """`slicewise agent` beside a real node, with GPUs that do not exist."""

    def __init__(self, plane, node) -> None:
        self.plane, self.node = plane, node
        self.port = free_port()
        self.dev = node.folder / "dev"
        self.gpus = [(at, GPUS - 1 - at, f"GPU-{at}") for at in range(GPUS)]
        self.dev.mkdir()
        numbers = {"nvidiactl": (195, 255), "nvidia-uvm": (510, 0)}
        numbers |= {f"nvidia{minor}": (195, minor) for _, minor, _ in self.gpus}
        for name, number in numbers.items():
            os.mknod(self.dev / name, 0o666 | stat.S_IFCHR, os.makedev(*number))
        self.description = node.folder / "gpus.yaml"
        entries = [
            {"index": at, "minor": minor, "uuid": uuid, "model": "NVIDIA A10", "memory": MEMORY}
            for at, minor, uuid in self.gpus
        ]
        self.description.write_text(yaml.safe_dump({"gpus": entries}))

    def start(self) -> None:
        node = self.node
        argv = [
            str(Path(sys.executable).with_name("slicewise")),
            "agent",
            f"--node-name={node.name}",
            f"--kubeconfig={self.plane.admin.path}",
            f"--address=127.0.0.1:{self.port}",
            f"--nvml=simulated:{self.description}",
            f"--device-plugins={node.device_plugins}",
            f"--pod-resources={node.pod_resources}",
            f"--runtime-endpoint={node.containerd_socket}",
            f"--cdi={node.cdi}",
            f"--dev={self.dev}",
            f"--virtual-manager-path={node.folder / 'vm'}",
            f"--state={node.folder / 'state'}",
        ]
        self.plane.bed.spawn("agent", argv)
        wait_until(self.ready, 60, lambda: self.plane.bed.tail("agent", 20))

    def log(self) -> str:
        return self.plane.bed.log("agent").read_text()

    def stop(self) -> None:
        self.plane.bed.stop("agent")

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as told:
                return told.status == 200
        except OSError:
            return False


@pytest.fixture(scope="module")
def plane(kube_binaries):
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries).start()
        publish_key(plane)
        yield plane


@pytest.fixture(scope="module")
def nodes(plane):
    return RealNodes(plane)


def record(node, gpus, cores, memory):
    """The record that gives each of two containers one of these GPUs."""
    given = {
        name: [[at, f"GPU-{at}", cores, memory]]
        for name, at in zip(("one", "two"), gpus, strict=True)
    }
    return {"at": 1, "containers": given, "epoch": 1, "node": node.name}


def burst_pod(name, limits):
    containers = [
        {
            "name": each,
            "image": "busybox:local",
            "imagePullPolicy": "Never",
            "command": SAY,
            "resources": {"limits": limits},
        }
        for each in ("one", "two")
    ]
    return {
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "hostNetwork": True,
            "containers": containers,
        },
    }


@pytest.mark.parametrize(
    ("runtime", "identity"),
    [(WITH_CDI, "cdi"), (WITHOUT_CDI, "match")],
    ids=["with-cdi", "without-cdi"],
)
def test_every_container_of_a_burst_names_exactly_its_own_gpu(plane, nodes, runtime, identity):
    (node,) = nodes.add(runtime.name, settings=NodeSettings(runtime))
    agent = LiveAgent(plane, node)
    agent.start()
    allocated = {}
    with plane.api() as api:
        api.wait_for(f"/api/v1/nodes/{node.name}", offers(*FORK, *OWN, *WHOLE), 60)
        for at in range(12):
            gpus = (at % SHARED, (at + 1 + at // SHARED) % SHARED)
            allocated[f"burst-{at}"] = gpus
            note = record(node, gpus, 10, 256)
            limits = FORK if at % 2 else OWN
            bind_signed(api, PODS, burst_pod(f"burst-{at}", limits), note)
        allocated["early"] = (4, 5)
        note = record(node, allocated["early"], 100, MEMORY)
        bind_signed(api, PODS, make_early(burst_pod("early", WHOLE)), note)
        ended = {
            name: api.wait_for(f"{PODS}/{name}", in_phase("Succeeded", "Failed"), 180)
            for name in allocated
        }
        said = {
            (name, each): plane.kubectl("logs", name, "-c", each).split()
            for name in allocated
            for each in ("one", "two")
        }
        told = json.loads(
            api.get(f"/api/v1/nodes/{node.name}")["metadata"]["annotations"]["slicewise.io/agent"]
        )
        for name in allocated:
            api.delete(f"{PODS}/{name}")
    wait_until(lambda: not leftovers(node), 180, lambda: f"left: {leftovers(node)}")
    log = plane.bed.log("agent").read_text()
    agent.stop()

    assert {pod["status"]["phase"] for pod in ended.values()} == {"Succeeded"}
    assert said == {
        (name, each): [f"GPU-{gpu}", f"nvidia{GPUS - 1 - gpu}"]
        for name, gpus in allocated.items()
        for each, gpu in zip(("one", "two"), gpus, strict=True)
    }
    assert told["identity"] == identity
    # The kubelet's own list told every pod; nobody received another's GPUs.
    assert "received the GPUs of another pod" not in log
    assert "without the kubelet's list" not in log


def leftovers(node):
    """What the agent keeps on the node for pods."""
    kept = [*node.cdi.glob("slicewise-*"), *(node.folder / "state").glob("matched/*")]
    return [*kept, *(path for path in (node.folder / "vm").glob("*") if path.name != "by-units")]


def make_early(pod):
    """The pod with its first container as an init container, whose units the second takes over."""
    spec = pod["spec"]
    spec["initContainers"], spec["containers"] = spec["containers"][:1], spec["containers"][1:]
    return pod


def offers(*resources):
    def reached(node):
        amounts = node["status"].get("allocatable", {})
        return all(amounts.get(each, "0") != "0" for each in resources)

    return reached


def holder_pod(name):
    """A pod that is deaf to its end and holds one GPU until it is killed."""
    pod = burst_pod(name, WHOLE)
    pod["spec"]["containers"] = pod["spec"]["containers"][:1]
    pod["spec"]["containers"][0]["command"] = ["sh", "-c", "trap '' TERM; sleep 600 & wait; wait"]
    pod["spec"]["terminationGracePeriodSeconds"] = 12
    return pod


def test_gpu_is_granted_again_only_when_its_container_has_ended(plane, nodes):
    (node,) = nodes.add("conflict", settings=NodeSettings(WITH_CDI))
    agent = LiveAgent(plane, node)
    agent.start()
    note = {"at": 1, "epoch": 1, "node": node.name}
    note["containers"] = {"one": [[0, "GPU-0", 100, MEMORY]]}
    with plane.api() as api:
        api.wait_for(f"/api/v1/nodes/{node.name}", offers(*WHOLE), 60)
        bind_signed(api, PODS, holder_pod("first"), note)
        api.wait_for(f"{PODS}/first", in_phase("Running"), 120)
        bind_signed(api, PODS, holder_pod("second"), {**note, "epoch": 2})
        wait_until(lambda: "pod default/first holds" in agent.log(), 60, agent.log)
        # The API forgets the pod at once; its container lives on until it is killed.
        api.delete(f"{PODS}/first", gracePeriodSeconds=0)
        api.wait_for(f"{PODS}/second", in_phase("Running"), 180)
        granted = [line for line in agent.log().splitlines() if grants(line, "second")]
        api.delete(f"{PODS}/second", gracePeriodSeconds=0)
    agent.stop()

    assert granted
    assert all('"gpus":"0"' in line for line in granted)


def grants(line, name):
    return "container granted" in line and f"default/{name}" in line
