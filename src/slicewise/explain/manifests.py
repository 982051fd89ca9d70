"""Pods out of manifests: bare ones, and those that workloads would make of their templates."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from slicewise.model import SlicewiseError

# Objects that stand beside workloads in their files and make no pods.
_MUTE: Final = frozenset(
    (
        "ClusterRole", "ClusterRoleBinding", "ConfigMap", "CustomResourceDefinition",
        "HorizontalPodAutoscaler", "Ingress", "KubeSchedulerConfiguration", "LimitRange",
        "Namespace", "NetworkPolicy",
        "PersistentVolume", "PersistentVolumeClaim", "PodDisruptionBudget", "PriorityClass",
        "ResourceQuota", "Role", "RoleBinding", "Secret", "Service", "ServiceAccount",
        "StorageClass",
    )
)  # fmt: skip


class ManifestError(SlicewiseError):
    """A manifest that cannot be read as pods."""


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """One pod as a manifest writes it, and how many of it there would be at a time."""

    name: str
    namespace: str | None
    pod: dict[str, Any]
    count: int = 1
    per_node: bool = False

    def make(self, at: int, namespace: str) -> dict[str, Any]:
        """The pod of this number, as the API would have it."""
        meta = {key: value for key, value in self.pod["metadata"].items() if key != "uid"}
        many = self.count != 1 or self.per_node
        meta["name"] = f"{self.name}-{at}" if many else self.name
        meta["namespace"] = self.namespace or namespace
        return {"metadata": meta, "spec": self.pod["spec"], "status": {"phase": "Pending"}}


def read_templates(*paths: Path) -> list[PodTemplate]:
    """Every pod template in files of YAML or JSON documents, in the order given."""
    found = [
        template
        for path in paths
        for file in _find_files(path)
        for document in _read_file(file)
        for template in _read_document(file, document)
    ]
    if not found:
        where = ", ".join(map(str, paths))
        raise ManifestError(f"{where}: expected a pod, or a workload with a pod template")
    return found


def _find_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(each for each in path.iterdir() if each.suffix in (".yaml", ".yml", ".json"))


def _read_file(path: Path) -> list[Any]:
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        return [each for each in yaml.safe_load_all(text) if each is not None]
    except OSError as error:
        raise ManifestError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: not YAML: {' '.join(str(error).split())}") from error


def _read_document(path: Path, document: Any) -> Iterator[PodTemplate]:
    if not isinstance(document, Mapping) or not document.get("kind"):
        raise ManifestError(
            f"{path}: {str(document)[:40]!r}: expected a Kubernetes object with a kind"
        )
    kind = str(document["kind"])
    if kind.endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _read_document(path, item)
    elif kind not in _MUTE:
        yield _read_object(path, kind, document)


def _read_object(path: Path, kind: str, document: Mapping[str, Any]) -> PodTemplate:
    meta = _map(document.get("metadata"))
    name = str(meta.get("name") or f"{meta.get('generateName') or kind.lower() + '-'}0")
    where = f"{path}: {kind} {name}"
    spec = _map(document.get("spec"))
    if kind == "CronJob":
        spec = _map(_map(spec.get("jobTemplate")).get("spec"))
    if kind == "PodTemplate":
        spec = {"template": document.get("template")}
    pod = document if kind == "Pod" else _map(spec.get("template"))
    inside = _map(pod.get("spec"))
    if not isinstance(inside.get("containers"), list) or not inside["containers"]:
        raise ManifestError(
            f"{where}: expected containers in its pod{'' if kind == 'Pod' else 's'}"
        )
    return PodTemplate(
        name=name,
        namespace=meta.get("namespace"),
        pod={"metadata": dict(_map(pod.get("metadata"))), "spec": dict(inside)},
        count=1 if kind == "Pod" else _read_count(where, kind, spec),
        per_node=kind == "DaemonSet",
    )


def _read_count(where: str, kind: str, spec: Mapping[str, Any]) -> int:
    """How many pods run at the same time."""
    if kind in ("Job", "CronJob"):
        at_once = _number(where, "parallelism", spec.get("parallelism"))
        if spec.get("completions") is None:
            return at_once
        return min(at_once, _number(where, "completions", spec["completions"]))
    return _number(where, "replicas", spec.get("replicas"))


def _number(where: str, key: str, value: Any) -> int:
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ManifestError(f"{where}: {key}={value!r}: expected a whole number from 0")
    return value


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
