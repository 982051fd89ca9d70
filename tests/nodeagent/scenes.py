"""GPUs, pods and processes for the agent's tests; a builder fills in what a test is not about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import builders
from slicewise.kube.local_pods import LocalContainer
from slicewise.model import Allocation, ContainerAllocation, MiB, Percent, Role, Slice
from slicewise.nodeagent.node_pods import NodePod
from slicewise.nodeagent.usage.cgroups import CgroupRef, HostProcess
from slicewise.nodeagent.usage.node_usage import UsageSample
from slicewise.nvml.driver import DriverError, GpuDevice, Load, Process


def device(index: int = 0, **facts) -> GpuDevice:
    return GpuDevice(builders.gpu(index, **facts), bus=f"00000000:{index:02X}:00.0")


def container(name: str = "c0", **facts) -> LocalContainer:
    facts = {"id": f"id-{name}", "running": True, **facts}
    return LocalContainer(name, **facts)


def node_pod(
    name: str = "p0", held: Mapping[str, Sequence[Slice]] | None = None, **facts
) -> NodePod:
    """A pod of running containers, each with an id of its own, that holds these slices."""
    held = {"c0": [builders.piece()]} if held is None else held
    uid = facts.pop("uid", f"uid-{name}")
    containers = facts.pop("containers", None) or [
        container(each, id=f"{uid}-{each}") for each in held
    ]
    allocation = Allocation(
        "n0",
        tuple(ContainerAllocation(each, tuple(pieces)) for each, pieces in held.items() if pieces),
    )
    facts = {"namespace": "ml", "asks": True, **facts}
    return NodePod(uid=uid, name=name, containers=tuple(containers), allocation=allocation, **facts)


def process(pid: int, memory: int = 1024, cores: int = 10) -> Process:
    return Process(pid, MiB(memory), Percent(cores))


def load(*processes: Process, **facts) -> Load:
    memory = facts.pop("memory", sum(each.memory for each in processes))
    cores = facts.pop("cores", sum(each.cores for each in processes))
    return Load(MiB(memory), Percent(cores), tuple(processes), **facts)


def host_process(pid: int, *refs: CgroupRef, command: str = "python3") -> HostProcess:
    return HostProcess(pid, pid, command, refs)


def inside(owner: NodePod, name: str = "c0") -> CgroupRef:
    """Where the processes of that container run."""
    found = next((each for each in owner.containers if each.name == name), None)
    return CgroupRef(owner.cgroup or owner.uid, None if found is None else found.id)


def reading(
    loads: Mapping[str, Load],
    seen: Mapping[int, Sequence[CgroupRef]] | None = None,
    at: float = 1000.0,
) -> UsageSample:
    seen = seen or {}
    return UsageSample(loads, {pid: host_process(pid, *refs) for pid, refs in seen.items()}, at)


@dataclass
class FakeDriver:
    """A driver that says what the test put in its mouth."""

    answers: dict[str, Load] = field(default_factory=dict)
    broken: bool = False
    asked: int = 0

    def loads(self):
        self.asked += 1
        if self.broken:
            raise DriverError("the driver went away")
        return dict(self.answers)

    def compute(self):
        return {
            uuid: {each.pid: each.cores for each in load.processes}
            for uuid, load in self.loads().items()
        }

    def hardware(self):
        raise NotImplementedError

    def wait_faults(self, seconds):
        return ()

    def close(self):
        pass


@dataclass
class FakeNodePods:
    """What the agent would know, as values that the test changes."""

    held: list[NodePod] = field(default_factory=list)
    present: list[GpuDevice] = field(default_factory=lambda: [device(0), device(1)])
    node: str = "n0"

    def gpus(self):
        return list(self.present)

    def links(self):
        return None

    def departed(self):
        return frozenset()

    def pods(self):
        return list(self.held)


INIT, SIDECAR = Role.INIT, Role.SIDECAR
