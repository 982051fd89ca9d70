"""Objects for tests: each builder fills in what the test is not about."""

from collections.abc import Iterable, Mapping, Sequence

from slicewise.model import (
    CHUNK,
    WHOLE_GPU,
    Constraints,
    Container,
    ContainerRequest,
    Gpu,
    Holding,
    Host,
    Links,
    MiB,
    MilliCpu,
    Node,
    NodeState,
    Percent,
    Pod,
    Quantity,
    Request,
    Role,
    Share,
    Slice,
    Snapshot,
)
from slicewise.model.claim import ClaimedDevice


def gpu(index: int = 0, model: str = "NVIDIA A100-SXM4-40GB", memory: int = 40960, **facts) -> Gpu:
    facts = {"uuid": f"GPU-{index}", "minor": index, **facts}
    return Gpu(index, model=model, memory=MiB(memory), **facts)


def node(
    name: str = "n0",
    gpus: int | Sequence[Gpu] = 2,
    memory: int = 40960,
    model: str = "NVIDIA A100-SXM4-40GB",
    **facts,
) -> Node:
    if isinstance(gpus, int):
        gpus = [
            gpu(index, model=model, memory=memory, uuid=f"GPU-{name}-{index}")
            for index in range(gpus)
        ]
    return Node(name, tuple(gpus), **facts)


def claimed(gpu: Gpu, node: str = "n0", cores: int = 30, memory: int = 4096, **facts):
    """A part of a GPU that was allocated to a claim, by the request `gpu`."""
    amounts = Percent(cores), MiB(memory)
    return ClaimedDevice("gpu", node, gpu.device, *amounts, **facts)


def host(cpu: int, memory: int = 0) -> Host:
    return Host(MilliCpu(cpu), MiB(memory))


def share(cores: int = 0, memory: int = 0) -> Share:
    return Share(Percent(cores), MiB(memory))


def request(
    *containers: Iterable[Share] | ContainerRequest,
    constraints: Constraints | None = None,
    host: Host | None = None,
) -> Request:
    named = tuple(
        each if isinstance(each, ContainerRequest) else ContainerRequest(f"c{at}", tuple(each))
        for at, each in enumerate(containers)
    )
    return Request(named, constraints or Constraints(), host or Host())


def fraction(cores: int = 30, memory: int = 4096) -> Request:
    return request([share(cores, memory)])


def whole(count: int = 1) -> Request:
    return request([WHOLE_GPU] * count)


def container(name: str = "c0", role: Role = Role.MAIN, **limits: Quantity) -> Container:
    return Container(name, limits=limits, role=role)


def pod(
    *containers: Container,
    limits: Mapping[str, Quantity] | None = None,
    uid: str = "u0",
    name: str = "p0",
    **facts,
) -> Pod:
    if limits is not None:
        containers = (Container("c0", limits=limits),)
    return Pod(
        uid=uid,
        namespace=facts.pop("namespace", "default"),
        name=name,
        containers=containers,
        **facts,
    )


def piece(gpu: int = 0, cores: int = 30, memory: int = 4096) -> Slice:
    return Slice(gpu, Percent(cores), MiB(memory))


def holding(uid: str = "u0", *charges: Slice, **facts) -> Holding:
    return Holding(uid, facts.pop("namespace", "default"), facts.pop("name", uid), charges, **facts)


def snapshot(*states: Node | NodeState) -> Snapshot:
    each = [NodeState.empty(state) if isinstance(state, Node) else state for state in states]
    each.sort(key=lambda state: state.node.name)
    chunks = tuple(tuple(each[at : at + CHUNK]) for at in range(0, len(each), CHUNK))
    return Snapshot(chunks, {state.node.name: at for at, state in enumerate(each)})


def pairs_linked(*groups: Sequence[int], near: int = 10, far: int = 50, nvlinks: int = 0) -> Links:
    """Links of a node whose GPUs are near each other inside each group, far otherwise."""
    count = sum(len(group) for group in groups)
    home = {gpu: at for at, group in enumerate(groups) for gpu in group}

    def matrix(inside: int, outside: int) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(0 if a == b else inside if home[a] == home[b] else outside for b in range(count))
            for a in range(count)
        )

    return Links(matrix(nvlinks, 0), matrix(near, far))
