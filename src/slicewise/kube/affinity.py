"""Which nodes a pod's spec allows: node selector, required affinity, taints and cordons.

kube-scheduler checks these before it asks an extender, so predictions have to check them too.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from slicewise.model import NodeDetails, Taint

_REPELLING: Final = ("NoSchedule", "NoExecute")
_CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


class Requirement(msgspec.Struct, gc=False):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class Term(msgspec.Struct, rename="camel", gc=False):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class _Required(msgspec.Struct, rename="camel", gc=False):
    node_selector_terms: list[Term] | None = None


class _NodeAffinity(msgspec.Struct, gc=False):
    required: _Required | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(msgspec.Struct, rename="camel", gc=False):
    node_affinity: _NodeAffinity | None = None


class Toleration(msgspec.Struct, gc=False):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether this taint is tolerated; an empty key or effect matches all."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class NodeRequirements(msgspec.Struct, rename="camel", gc=False):
    """What a pod's spec requires of its node beside resources."""

    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    tolerations: list[Toleration] | None = None


def read_node_requirements(spec: Mapping[str, Any]) -> NodeRequirements:
    """The requirements in a pod's spec; raises msgspec.ValidationError when they are malformed."""
    return msgspec.convert(spec, NodeRequirements)


def rejection(requirements: NodeRequirements, node: NodeDetails) -> str | None:
    """Why the scheduler would not even ask about this node; None when it would."""
    if requirements.node_name and requirements.node_name != node.name:
        return f"pod names node {requirements.node_name}"
    for key, value in (requirements.node_selector or {}).items():
        if node.labels.get(key) != value:
            return f"no label {key}={value}"
    terms = _read_terms(requirements)
    if terms is not None and not any(_admits(term, node) for term in terms):
        return "no required node affinity term matches"
    taints = (*node.taints, *((_CORDON,) if node.unschedulable else ()))
    tolerations = requirements.tolerations or ()
    for taint in taints:
        if taint.effect in _REPELLING and not any(each.tolerates(taint) for each in tolerations):
            value = f"={taint.value}" if taint.value else ""
            return f"taint {taint.key}{value}:{taint.effect}"
    return None


def _read_terms(requirements: NodeRequirements) -> list[Term] | None:
    affinity = requirements.affinity.node_affinity if requirements.affinity else None
    if affinity is None or affinity.required is None:
        return None
    return affinity.required.node_selector_terms or []


def _admits(term: Term, node: NodeDetails) -> bool:
    expressions, fields = term.match_expressions or [], term.match_fields or []
    # An empty term matches nothing, as Kubernetes has it.
    if not expressions and not fields:
        return False
    by_field = {"metadata.name": node.name}
    return all(holds(each, node.labels) for each in expressions) and all(
        holds(each, by_field) for each in fields
    )


def holds(wish: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether labels meet one expression of a selector."""
    given, values = labels.get(wish.key), wish.values or []
    match wish.operator:
        case "In":
            return given in values
        case "NotIn":
            return given not in values
        case "Exists":
            return given is not None
        case "DoesNotExist":
            return given is None
        case "Gt" | "Lt":
            try:
                left, right = int(given or ""), int(values[0])
            except (ValueError, IndexError):
                return False
            return left > right if wish.operator == "Gt" else left < right
    return False
