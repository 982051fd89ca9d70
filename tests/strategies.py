"""Random values for property tests: nodes with shuffled minors, and allocations on them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

import builders
from slicewise.dialects import Dialect, apply_record
from slicewise.model import (
    Allocation,
    ContainerAllocation,
    DialectError,
    Node,
    Pod,
    Request,
    Role,
    cut,
)

texts = st.text(max_size=40) | st.text(alphabet='0123456789,-:{}[]" ".abc%', max_size=40)
roles = st.sampled_from(Role)


@st.composite
def nodes(draw: st.DrawFn, least: int = 1, most: int = 8) -> Node:
    """A node whose GPUs' minor numbers do not follow their indexes."""
    count = draw(st.integers(least, most))
    minors = draw(st.permutations(range(count + 2)))
    return builders.node(
        gpus=[
            builders.gpu(index, minor=minors[index], memory=draw(st.integers(1, 81920)))
            for index in range(count)
        ]
    )


@st.composite
def allocations(draw: st.DrawFn, request: Request, node: Node) -> Allocation:
    """GPUs for every share, without regard to what is free."""
    same = draw(st.permutations(node.gpus)) if request.constraints.together else None
    containers = []
    for each in request.containers:
        gpus = same or draw(st.permutations(node.gpus))
        slices = (cut(share, gpu) for share, gpu in zip(each.shares, gpus, strict=False))
        containers.append(ContainerAllocation(each.name, tuple(slices)))
    return Allocation(node.name, tuple(containers))


def remember(
    dialect: Dialect, pod: Pod, allocation: Allocation, node: Node, now_ns: int = 1
) -> Allocation | None:
    """What the dialect reads back after it has written the allocation on the pod."""
    request = dialect.pods.read_request(pod)
    record = dialect.pods.record_allocation(pod, request, allocation, node, now_ns=now_ns)
    return dialect.pods.read_allocation(apply_record(pod, record), request, node)


def refused_or_read(dialect: Dialect, pod: Pod, node: Node) -> bool:
    """Whether reading the pod ends as it may: in a value, or in an error of our own."""
    try:
        request = dialect.pods.read_request(pod)
        allocation = dialect.pods.read_allocation(pod, request, node)
    except DialectError as error:
        return bool(str(error))
    return allocation is None or allocation.node == node.name


def with_roles(pod: Pod, draw_role: Callable[[], Role]) -> Pod:
    """The pod with a random role for each container, in the order the spec keeps them."""
    given = [replace(each, role=draw_role()) for each in pod.containers]
    return replace(pod, containers=tuple(sorted(given, key=lambda each: each.role is Role.MAIN)))


def place(request: Request, node: Node) -> Allocation:
    """Every container's shares on the first GPUs of the node."""
    return Allocation(
        node.name,
        tuple(
            ContainerAllocation(
                each.name,
                tuple(cut(share, gpu) for share, gpu in zip(each.shares, node.gpus, strict=False)),
            )
            for each in request.containers
        ),
    )


MODELS = {"NVIDIA A100-SXM4-40GB": 40960, "NVIDIA A10": 23028, "Tesla T4": 15360}


@st.composite
def clusters(draw: st.DrawFn, most: int = 4) -> list[Node]:
    """A few nodes of one model each, with GPUs that are cordoned, unhealthy, linked or fine."""
    made = []
    for at in range(draw(st.integers(1, most))):
        model = draw(st.sampled_from(sorted(MODELS)))
        count = draw(st.integers(0, 4))
        gpus = [
            builders.gpu(
                index,
                model=model,
                memory=MODELS[model],
                uuid=f"GPU-n{at}-{index}",
                healthy=draw(st.sampled_from((True, True, True, False))),
                cordoned=draw(st.sampled_from((False, False, False, True))),
            )
            for index in range(count)
        ]
        halves = (range(count // 2), range(count // 2, count))
        links = builders.pairs_linked(*halves, nvlinks=4) if draw(st.booleans()) else None
        made.append(builders.node(f"n{at}", gpus, links=links))
    return made


@st.composite
def gpu_pods(draw: st.DrawFn, name: str = "p0") -> dict[str, Any]:
    """A pod of any system as the API would show it: one or two containers, perhaps with wishes."""
    limits, keys = draw(_limits), {}
    if "slicewise.io/gpu" in limits:
        if draw(st.booleans()):
            keys["slicewise.io/models"] = draw(st.sampled_from(["a100", "a10", "t4,a10"]))
        if draw(st.booleans()):
            keys["slicewise.io/topology"] = draw(st.sampled_from(["nvlink", "required:nvlink"]))
    containers = [
        {"name": f"c{at}", "resources": {"limits": limits}} for at in range(draw(st.integers(1, 2)))
    ]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": keys},
        "spec": {"containers": containers},
        "status": {"phase": "Pending"},
    }


def _write_own(count: int, cores: int, memory: int) -> dict[str, int]:
    parts = {} if cores == 100 else {"slicewise.io/cores": cores, "slicewise.io/memory": memory}
    return {"slicewise.io/gpu": count, **parts}


_limits = st.one_of(
    st.builds(
        _write_own,
        st.integers(1, 4),
        st.sampled_from([10, 40, 60, 100]),
        st.sampled_from([64, 4096, 16000, 50000]),
    ),
    st.builds(lambda units: {"aliyun.com/gpu-mem": units}, st.integers(1, 50)),
    st.builds(lambda cores: {"elasticgpu.io/gpu-core": cores}, st.sampled_from([20, 70, 100, 200])),
    st.builds(
        lambda cores, memory: {"nvidia.com/vcuda-core": cores, "nvidia.com/vcuda-memory": memory},
        st.sampled_from([20, 70, 100, 300]),
        st.sampled_from([512, 20000]),
    ),
    st.just({"nvidia.com/gpu": 1}),
)
