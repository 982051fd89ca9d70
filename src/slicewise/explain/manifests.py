"""The one reader of manifests: objects out of YAML or JSON, and the pods they would make.

It is given texts; whoever calls it opens the files.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from slicewise.model import SlicewiseError

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CLAIM_KINDS: Final = frozenset(("DeviceClass", "ResourceClaim", "ResourceClaimTemplate"))
"""Objects that say what the claims of pods ask for."""
# Objects that stand beside workloads in their files and make no pods.
WITHOUT_PODS: Final = frozenset(
    (
        "ClusterRole", "ClusterRoleBinding", "ConfigMap", "CustomResourceDefinition",
        "HorizontalPodAutoscaler", "Ingress", "KubeSchedulerConfiguration", "LimitRange",
        "Namespace", "NetworkPolicy",
        "PersistentVolume", "PersistentVolumeClaim", "PodDisruptionBudget", "PriorityClass",
        "ResourceQuota", "Role", "RoleBinding", "Secret", "Service", "ServiceAccount",
        "StorageClass", *CLAIM_KINDS,
    )
)  # fmt: skip


class ManifestError(SlicewiseError):
    """A manifest that cannot be read as pods."""


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """One pod as a manifest writes it, and how many of it there would be.

    `count` is how many run at a time, `total` how many there are until a Job is complete.
    """

    name: str
    namespace: str | None
    pod: dict[str, Any]
    count: int = 1
    total: int = 1
    per_node: bool = False
    where: str = ""
    """File, kind and name of the object, as errors call it."""
    field: str = ""
    """What stands before the pod's own fields in the object."""

    def make(self, at: int, namespace: str) -> dict[str, Any]:
        """The pod of this number, as the API would have it."""
        meta = {key: value for key, value in self.pod["metadata"].items() if key != "uid"}
        many = self.count != 1 or self.per_node
        meta["name"] = f"{self.name}-{at}" if many else self.name
        meta["namespace"] = self.namespace or namespace
        return {"metadata": meta, "spec": self.pod["spec"], "status": {"phase": "Pending"}}


@dataclass(frozen=True, slots=True)
class Manifests:
    """Pod templates, and the classes, claims and templates of claims that stand beside them."""

    templates: list[PodTemplate]
    claims: list[Mapping[str, Any]] = field(default_factory=list)


def parse_documents(name: str, text: str) -> Iterator[Mapping[str, Any]]:
    """Every object in a file's text, lists taken apart; `name` is how errors call the file."""
    try:
        if name.endswith(".json"):
            documents = [json.loads(text)]
        else:
            documents = list(yaml.load_all(text, Loader=_LOADER))
    except (ValueError, yaml.YAMLError) as error:
        form = "JSON" if name.endswith(".json") else "YAML"
        words = " ".join(str(error).split())
        raise ManifestError(f"cannot read {name}: not {form}: {words}") from error
    for document in documents:
        yield from _flatten(name, document)


def _flatten(name: str, document: object) -> Iterator[Mapping[str, Any]]:
    """The object itself, or the items of a list of objects."""
    if document is None:
        return
    if not isinstance(document, dict) or not document.get("kind"):
        shown = str(document)[:40]
        raise ManifestError(f"{name}: {shown!r}: expected a Kubernetes object with a kind")
    kind = str(document["kind"])
    if not kind.endswith("List") or not isinstance(document.get("items") or [], list):
        yield document
        return
    for item in document.get("items") or ():
        # Items of typed lists carry no kind of their own.
        bare = isinstance(item, dict) and "kind" not in item and kind != "List"
        yield from _flatten(name, {"kind": kind.removesuffix("List"), **item} if bare else item)


def read_manifests(name: str, text: str) -> Manifests:
    """The pod templates of a file's text and what claims ask for, in the order it has."""
    documents = list(parse_documents(name, text))
    return Manifests(
        [read_template(name, each) for each in documents if each["kind"] not in WITHOUT_PODS],
        [each for each in documents if each["kind"] in CLAIM_KINDS],
    )


def read_template(name: str, document: Mapping[str, Any]) -> PodTemplate:
    """The pod of an object: its own, or the one that its controller makes."""
    kind = str(document["kind"])
    meta = _map(document.get("metadata"))
    title = str(meta.get("name") or f"{meta.get('generateName') or kind.lower() + '-'}0")
    where = f"{name}: {kind} {title}"
    spec, field = _map(document.get("spec")), "spec.template."
    if kind == "CronJob":
        spec, field = _map(_map(spec.get("jobTemplate")).get("spec")), f"spec.jobTemplate.{field}"
    if kind == "PodTemplate":
        spec, field = {"template": document.get("template")}, "template."
    pod = document if kind == "Pod" else _map(spec.get("template"))
    field = "" if kind == "Pod" else field
    inside = _map(pod.get("spec"))
    if not isinstance(inside.get("containers"), list) or not inside["containers"]:
        raise ManifestError(
            f"{where}: {field}spec.containers: expected containers in its "
            f"pod{'' if kind == 'Pod' else 's'}"
        )
    return PodTemplate(
        name=title,
        namespace=meta.get("namespace"),
        pod={"metadata": dict(_map(pod.get("metadata"))), "spec": dict(inside)},
        count=1 if kind == "Pod" else _read_count(where, kind, spec),
        total=1 if kind == "Pod" else _read_total(where, spec),
        per_node=kind == "DaemonSet",
        where=where,
        field=field,
    )


def _read_count(where: str, kind: str, spec: Mapping[str, Any]) -> int:
    """How many pods run at the same time."""
    if kind in ("Job", "CronJob"):
        at_once = _number(where, "parallelism", spec.get("parallelism"))
        if spec.get("completions") is None:
            return at_once
        return min(at_once, _number(where, "completions", spec["completions"]))
    return _number(where, "replicas", spec.get("replicas"))


def _read_total(where: str, spec: Mapping[str, Any]) -> int:
    """How many pods there are over the controller's life."""
    for key in ("replicas", "completions", "parallelism"):
        if spec.get(key) is not None:
            return _number(where, key, spec[key])
    return 1


def _number(where: str, key: str, value: Any) -> int:
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ManifestError(f"{where}: {key}={value!r}: expected a whole number from 0")
    return value


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
