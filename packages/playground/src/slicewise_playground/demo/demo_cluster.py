"""What the demo starts with: GPU nodes as each system's agents publish them, and the examples."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from slicewise.dialects import ALLOCATION, GPUS, GPUSCHEDULER, write_gpus
from slicewise.explain.manifest_pods import check_template
from slicewise.explain.manifests import ManifestError, parse_documents, read_template
from slicewise.model import (
    Gpu,
    IsolationTier,
    Links,
    MiB,
    Node,
    OfferedIsolation,
    SlicewiseError,
)
from slicewise_playground.kubelet.simulated_node import SimulatedNode

REGISTER: Final = "tydic.io/nvidia-device-register"
_EVERY: Final = ("slicewise", "tkestack", "gpushare", "elastic", "nvidia")
_HOST: Final = {"cpu": "64", "memory": "512Gi", "pods": "110"}
_PLURALS: Final = {
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "Namespace": "namespaces",
    "Pod": "pods",
    "StatefulSet": "statefulsets",
}
_WITH_PODS: Final = ("deployments", "pods", "statefulsets")

UNFIT: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "does-not-fit"},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "nvidia/cuda:12.4.1-base-ubuntu22.04",
                "resources": {
                    "limits": {
                        "slicewise.io/gpu": "6",
                        "slicewise.io/cores": "50",
                        "slicewise.io/memory": "36864",
                    }
                },
            }
        ]
    },
}
"""A pod that no node of the demo has room for."""


@dataclass(frozen=True, slots=True)
class ExampleManifest:
    """One object of the examples, and the system it is an example of."""

    system: str
    document: dict[str, Any]

    @property
    def resource(self) -> str:
        """The plural under which the API knows its kind."""
        return _PLURALS[self.document["kind"]]

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        meta = self.document["metadata"]
        return meta.get("namespace") or "default", meta["name"]

    @property
    def pods(self) -> int:
        """How many pods it makes."""
        if self.resource == "pods":
            return 1
        if self.resource in ("deployments", "statefulsets"):
            return int(self.document["spec"].get("replicas", 1))
        return 0


def find_examples() -> Path:
    """The examples of this source tree, or those that were installed with the package."""
    package = Path(__file__).resolve().parents[1]
    places = (package / "examples", package.parents[1] / "examples")
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise SlicewiseError("no examples beside the package: pass --examples")
    return found


def read_manifests(folder: Path) -> list[ExampleManifest]:
    """Every object in `<system>/*.yaml`, scheduler configurations aside."""
    found = [
        _read_manifest(path, document)
        for path in sorted(folder.glob("*/*.yaml"))
        for document in parse_documents(str(path), _read_text(path))
        if document["kind"] != "KubeSchedulerConfiguration"
    ]
    if not found:
        raise SlicewiseError(f"{folder}: expected manifests like gpushare/pod.yaml")
    return found


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"cannot read {path}: {error}") from error


def _read_manifest(path: Path, document: Mapping[str, Any]) -> ExampleManifest:
    """The object, if the embedded API and the schedulers of the demo can take it."""
    kind, meta = document["kind"], document.get("metadata")
    if kind not in _PLURALS:
        raise ManifestError(f"{path}: kind={kind!r}: expected {', '.join(_PLURALS)}")
    if not isinstance(meta, Mapping) or not isinstance(meta.get("name"), str):
        raise ManifestError(f"{path}: {kind}: metadata.name: expected a name")
    if _PLURALS[kind] in _WITH_PODS:
        check_template(read_template(str(path), document))
    return ExampleManifest(path.parent.name, dict(document))


def build_nodes() -> list[SimulatedNode]:
    """Six nodes: three of other agents, in their own form, and three of ours for every system."""
    return [
        _publish(_equal("a10-0", 4, "NVIDIA A10", 23028), "tkestack"),
        _publish(_equal("a30-0", 8, "NVIDIA A30", 24258), "gpushare"),
        _publish(_equal("v100-0", 4, "Tesla V100-SXM2-16GB", 16160), "elastic"),
        _publish(_equal("t4-0", 4, "Tesla T4", 15360), *_EVERY),
        _publish(_linked("a100-0", 8), *_EVERY),
        _publish(_mixed("mixed-0"), *_EVERY),
    ]


def _equal(name: str, count: int, model: str, memory: int) -> Node:
    return Node(name, tuple(_gpu(name, at, model, memory) for at in range(count)))


def _linked(name: str, count: int) -> Node:
    """A node whose GPUs are joined by NVLink within each half."""
    half = count // 2

    def matrix(inside: int, outside: int) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(
                0 if one == other else inside if one // half == other // half else outside
                for other in range(count)
            )
            for one in range(count)
        )

    plain = _equal(name, count, "NVIDIA A100-SXM4-40GB", 40960)
    return Node(name, plain.gpus, Links(nvlinks=matrix(4, 0), pcie=matrix(10, 50)))


def _mixed(name: str) -> Node:
    """A node with GPUs of two sizes."""
    large = [_gpu(name, at, "NVIDIA A100 80GB PCIe", 81920) for at in range(2)]
    small = [_gpu(name, at, "NVIDIA A10", 23028) for at in range(2, 4)]
    return Node(name, (*large, *small))


def _gpu(name: str, at: int, model: str, memory: int) -> Gpu:
    return Gpu(at, f"GPU-{name}-{at}", model, MiB(memory), minor=at)


def _publish(node: Node, *systems: str) -> SimulatedNode:
    """The node as the agents of these systems would show it."""
    capacity = dict(_HOST)
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    for system in systems:
        capacity |= {key: str(value) for key, value in _capacity(system, node.gpus)}
    awaits = {}
    if "slicewise" in systems:
        annotations[GPUS] = write_gpus(_limited(node))
        awaits = dict.fromkeys(GPUSCHEDULER.pods.resources, ALLOCATION)
    if "tkestack" in systems:
        annotations[REGISTER] = json.dumps([_register(gpu) for gpu in node.gpus])
    if len({gpu.model for gpu in node.gpus}) == 1:
        labels["nvidia.com/gpu.product"] = node.gpus[0].model.replace(" ", "-")
        labels["nvidia.com/gpu.memory"] = str(node.gpus[0].memory)
    return SimulatedNode(node.name, capacity, labels, annotations, awaits=awaits)


def _limited(node: Node) -> Node:
    """The node with the limiter in every container, as our agent has it."""
    offered = OfferedIsolation((IsolationTier.HOOK,), (IsolationTier.HOOK,))
    return replace(node, gpus=tuple(replace(gpu, isolation=offered) for gpu in node.gpus))


def _capacity(system: str, gpus: Sequence[Gpu]) -> Iterator[tuple[str, int]]:
    """What a system's device plugin makes the kubelet report."""
    count, memory = len(gpus), sum(gpu.memory for gpu in gpus)
    match system:
        case "tkestack":
            yield from (("nvidia.com/vcuda-core", 100 * count), ("nvidia.com/vcuda-memory", memory))
        case "gpushare":
            yield "aliyun.com/gpu-count", count
            yield "aliyun.com/gpu-mem", sum(gpu.memory // 1024 for gpu in gpus)
        case "elastic":
            yield "elastic-gpu/gpu-percent", 100 * count
            yield "elasticgpu.io/gpu-core", 100 * count
            yield "elasticgpu.io/gpu-memory", memory
        case "nvidia":
            yield "nvidia.com/gpu", count
        case "slicewise":
            # Shares of one GPU count as GPUs of their own here; the extender knows better.
            yield "slicewise.io/gpu", 100 * count
            yield "slicewise.io/cores", 100 * count
            yield "slicewise.io/memory", memory


def _register(gpu: Gpu) -> dict[str, Any]:
    """One GPU as gpu-manager's fork registers it."""
    return {
        "id": gpu.uuid,
        "core": 100,
        "memory": gpu.memory,
        "type": gpu.model,
        "isMig": False,
        "capability": 80,
        "health": True,
    }
