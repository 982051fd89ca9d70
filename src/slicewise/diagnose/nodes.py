"""What doctor says of nodes: labels, inventories, device plugins, runtimes, unhealthy GPUs."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from slicewise.diagnose.findings import Finding, note, ok, problem, warning
from slicewise.dialects import CORDONED, DEFAULT, GPUS
from slicewise.dialects.gpuscheduler.pods import GPU as NVIDIA_GPU
from slicewise.dialects.gpushare.pods import GIB
from slicewise.dialects.shared.inventory import is_invented, read_capacity
from slicewise.model import Node, NodeDetails, SlicewiseError, count

NODES: Final = "nodes"
RUNTIME: Final = "container runtimes"
_AGENT: Final = "run the Slicewise agent on the node"
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")
# From these versions on, names of CDI devices reach the runtime.
_KUBELET_CDI: Final = (1, 29)
_CONTAINERD_CDI: Final = (1, 7)
_CONTAINERD_CDI_ON: Final = (2, 0)
_CRIO_CDI: Final = (1, 28)


def check_nodes(nodes: Sequence[NodeDetails]) -> tuple[list[Finding], list[NodeDetails]]:
    """What is wrong with the nodes, and those of them that have GPUs."""
    findings: list[Finding] = []
    with_gpus: list[NodeDetails] = []
    gpus, units = 0, set()
    for details in nodes:
        findings += _check_labels(details)
        try:
            node = DEFAULT.read_node(details.notice)
        except SlicewiseError as error:
            fix = "correct the annotation or restart the agent that wrote it"
            findings.append(problem(NODES, f"GPUs cannot be read: {error}", fix, details.name))
            continue
        if node.gpus:
            with_gpus.append(details)
            gpus += len(node.gpus)
            units.add(node.memory_unit)
            findings += _check_node(details, node)
            findings += _check_runtime(details)
    if len(units - {None}) > 1:
        what = f"nodes count {GIB.memory} in GiB and in MiB: a pod's amount means each node's own"
        fix = "give all device plugins one --memory-unit, if that is not intended"
        findings.append(note(NODES, what, fix))
    of_all = f"of {count(len(nodes), 'node')}"
    if with_gpus:
        show = "shows" if len(with_gpus) == 1 else "show"
        first = ok(NODES, f"{len(with_gpus)} {of_all} {show} {count(gpus, 'GPU')}")
    else:
        fix = "label GPU nodes for their device plugin, or run the Slicewise agent on them"
        first = problem(NODES, f"none {of_all} shows a GPU", fix)
    return [first, *findings], with_gpus


def find_resources(nodes: Iterable[NodeDetails]) -> frozenset[str]:
    return frozenset(
        resource
        for details in nodes
        for resource in DEFAULT.resources
        if read_capacity(details.notice, resource)
    )


def _check_labels(details: NodeDetails) -> Iterator[Finding]:
    for dialect in DEFAULT.dialects:
        label = dialect.node.plugin_label
        if label is None:
            continue
        key, value, resource = label.key, label.value, label.resource
        labelled = details.labels.get(key) == value
        offers = _offers(details, resource)
        if labelled and not offers:
            what = f"label {key}={value} is set, and {resource} is 0"
            fix = "look at the device plugin's pod there: driver, NVML and kubelet socket"
            yield problem(NODES, what, fix, details.name)
        if offers and not labelled and label.expected and GPUS not in details.notice.annotations:
            yield note(
                NODES,
                f"{resource} is offered without label {key}={value}",
                f"kubectl label node {details.name} {key}={value}, "
                f"if {dialect.name}'s plugin serves it",
                details.name,
            )


def _check_node(details: NodeDetails, node: Node) -> Iterator[Finding]:
    name = details.name
    if not details.ready:
        yield warning(NODES, "is not Ready", "kubectl describe node, then its kubelet's log", name)
    published = GPUS in details.notice.annotations
    if is_invented(node.gpus[0].uuid):
        what = "GPUs are known by amounts alone: taken as equal, UUIDs and links unknown"
        yield note(NODES, what, _AGENT, name)
    shared = [each for each in DEFAULT.resources if each != NVIDIA_GPU and _offers(details, each)]
    if _offers(details, NVIDIA_GPU) and shared and not published:
        what = f"{NVIDIA_GPU} is offered beside {min(shared)}: two device plugins give out one GPU"
        fix = "keep NVIDIA's device plugin off nodes whose GPUs are shared"
        yield warning(NODES, what, fix, name)
    if published and not shared and not _offers(details, NVIDIA_GPU):
        what = "GPUs are published and no resource is: pods that ask for them cannot start"
        fix = "look at the agent's log: its device plugins are not registered with the kubelet"
        yield problem(NODES, what, fix, name)
    yield from _check_gpus(details, node)


def _check_gpus(details: NodeDetails, node: Node) -> Iterator[Finding]:
    name = details.name
    for gpu in node.gpus:
        if gpu.cordoned:
            fix = f"kubectl slicewise uncordon {name} {gpu.index}, when it may take pods again"
            yield note(NODES, f"gpu {gpu.index} is cordoned", fix, name)
        elif not gpu.healthy:
            fix = "look at the agent's log and at nvidia-smi on the node; reset or replace the GPU"
            yield warning(NODES, f"gpu {gpu.index} is unhealthy", fix, name)
    known = {each for gpu in node.gpus for each in (gpu.uuid, str(gpu.index))}
    words = details.notice.annotations.get(CORDONED, "").split(",")
    listed = {each.strip() for each in words} - {""}
    for each in sorted(listed - known):
        fix = f"kubectl slicewise uncordon {name} {each}"
        yield note(NODES, f"cordoned GPU {each} is not there", fix, name)


def _check_runtime(details: NodeDetails) -> Iterator[Finding]:
    """Whether names of CDI devices reach containers; without them the NVIDIA runtime must do."""
    fallback = "or make nvidia the runtime's default, which needs no CDI"
    kind, _, text = details.runtime.partition("://")
    version = _read_version(text)
    kubelet = _read_version(details.kubelet)
    if kubelet is not None and kubelet < _KUBELET_CDI:
        what = f"kubelet {details.kubelet} passes no CDI devices to the runtime"
        yield warning(RUNTIME, what, f"upgrade to 1.29 or later, {fallback}", details.name)
    what = f"{kind} {text} knows no CDI devices"
    if kind == "docker":
        yield warning(RUNTIME, what, f"move to containerd or CRI-O, {fallback}", details.name)
    elif version is None:
        return
    elif kind == "containerd" and version < _CONTAINERD_CDI:
        yield warning(RUNTIME, what, f"upgrade to 1.7 or later, {fallback}", details.name)
    elif kind == "containerd" and version < _CONTAINERD_CDI_ON:
        what = f"containerd {text} has CDI off unless its configuration says otherwise"
        yield note(RUNTIME, what, f"set enable_cdi = true, {fallback}", details.name)
    elif kind == "cri-o" and version < _CRIO_CDI:
        yield warning(RUNTIME, what, f"upgrade to 1.28 or later, {fallback}", details.name)


def _read_version(text: str) -> tuple[int, int] | None:
    found = _VERSION.match(text)
    return None if found is None else (int(found[1]), int(found[2]))


def _offers(details: NodeDetails, resource: str) -> bool:
    try:
        return read_capacity(details.notice, resource) > 0
    except SlicewiseError:
        return False
