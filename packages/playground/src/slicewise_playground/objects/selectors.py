"""Label and field selectors: parsed once, then asked of each object.

A field selector knows only the fields its resource declares, as on the real server.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from slicewise_playground.objects.errors import bad_request
from slicewise_playground.objects.resources import ApiResource, Object

POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
EVENT_FIELDS = (
    *(
        f"involvedObject.{field}"
        for field in (
            "kind",
            "namespace",
            "name",
            "uid",
            "apiVersion",
            "resourceVersion",
            "fieldPath",
        )
    ),
    "reason",
    "reportingComponent",
    "source",
    "type",
)
FIELDS: Mapping[str, tuple[str, ...]] = {
    "pods": POD_FIELDS,
    "events": EVENT_FIELDS,
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "jobs.batch": ("status.successful",),
    "replicasets.apps": ("status.replicas",),
    "resourceslices.resource.k8s.io": ("spec.driver", "spec.nodeName"),
}
REGARDING = "regarding."

_REQUIREMENT = re.compile(
    r"^\s*(?P<absent>!)?\s*(?P<key>[A-Za-z0-9][A-Za-z0-9_./-]*)\s*"
    r"(?:(?P<operator>==|!=|=|>|<|\bin\b|\bnotin\b)\s*(?P<value>.*?))?\s*$"
)
_NAME = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a collection a request is about."""

    namespace: str = ""
    name: str = ""
    """The only name that can match, when the selector pins it."""
    tests: tuple[Callable[[Object], bool], ...] = ()

    @property
    def everything(self) -> bool:
        """Whether no selector narrows the collection."""
        return not self.tests

    def matches(self, item: Object) -> bool:
        """Whether the object is selected."""
        if self.namespace and item["metadata"].get("namespace") != self.namespace:
            return False
        return all(test(item) for test in self.tests)


def select(resource: ApiResource, namespace: str, query: Mapping[str, str]) -> Selection:
    """The selection that a list, watch or deletecollection asks for."""
    tests: list[Callable[[Object], bool]] = []
    labels = query.get("labelSelector", "")
    fields = query.get("fieldSelector", "")
    if labels:
        tests.append(label_test(labels))
    name = ""
    for field, operator, value in _field_terms(resource, labels, fields):
        tests.append(_field_test(field, operator, value))
        if field == "metadata.name" and operator == "=":
            name = value
    return Selection(namespace, name, tuple(tests))


def label_test(selector: str) -> Callable[[Object], bool]:
    """The question a label selector asks of an object."""
    terms = [_label_term(part) for part in _split_labels(selector)]

    def matches(item: Object) -> bool:
        labels = item["metadata"].get("labels") or {}
        return all(term(labels) for term in terms)

    return matches


def selector_of(selector: Mapping[str, Any]) -> str:
    """The text form of a LabelSelector object."""
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for rule in selector.get("matchExpressions") or []:
        key, operator = rule["key"], rule["operator"]
        values = ",".join(rule.get("values") or [])
        words = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        parts.append(words[operator])
    return ",".join(parts)


def _split_labels(selector: str) -> Iterable[str]:
    """The requirements between commas, leaving the commas of value sets alone."""
    return (part for part in re.split(r",(?![^(]*\))", selector) if part.strip())


def _label_term(text: str) -> Callable[[Mapping[str, str]], bool]:
    """One requirement as a test of labels."""
    match = _REQUIREMENT.match(text)
    if match is None:
        raise bad_request(f"unable to parse requirement: {text.strip()!r} is no label requirement")
    key, operator, raw = match["key"], match["operator"], match["value"] or ""
    if operator is None:
        absent = match["absent"] is not None
        return lambda labels: (key in labels) != absent
    if operator in {"in", "notin"}:
        if not (raw.startswith("(") and raw.endswith(")")):
            raise bad_request(f"unable to parse requirement: {raw!r}: expected values in brackets")
        values = frozenset(part.strip() for part in raw[1:-1].split(","))
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if operator in {">", "<"}:
        return _number_term(key, operator, raw)
    if not _NAME.match(raw):
        raise bad_request(f"unable to parse requirement: values: Invalid value: {raw!r}")
    if operator == "!=":
        return lambda labels: labels.get(key) != raw
    return lambda labels: labels.get(key) == raw


def _number_term(key: str, operator: str, raw: str) -> Callable[[Mapping[str, str]], bool]:
    """A requirement that compares integers."""
    try:
        bound = int(raw)
    except ValueError as error:
        raise bad_request(f"unable to parse requirement: {raw!r} is no integer") from error

    def matches(labels: Mapping[str, str]) -> bool:
        try:
            value = int(labels[key])
        except (KeyError, ValueError):
            return False
        return value > bound if operator == ">" else value < bound

    return matches


def _field_terms(resource: ApiResource, labels: str, fields: str) -> Iterable[tuple[str, str, str]]:
    """The field, operator and value of each term of a field selector."""
    known = ("metadata.name", "metadata.namespace", *FIELDS.get(resource.collection, ()))
    for part in re.split(r"(?<!\\),", fields):
        if not part:
            continue
        match = re.match(r"^(?P<field>[^!=]+?)(?P<operator>==|!=|=)(?P<value>.*)$", part)
        if match is None:
            raise bad_request(f"invalid selector: {fields!r}; can't understand {part!r}")
        field = match["field"].strip()
        if resource.group == "events.k8s.io" and field.startswith(REGARDING):
            field = "involvedObject." + field.removeprefix(REGARDING)
        if field not in known:
            where = f"{resource.group}/{resource.version}, Resource={resource.plural}"
            raise bad_request(
                f'Unable to find "{where}" that match label selector "{labels}", '
                f'field selector "{fields}": field label not supported: {field}'
            )
        value = re.sub(r"\\([\\,=])", r"\1", match["value"])
        yield field, "!=" if match["operator"] == "!=" else "=", value


def _field_test(field: str, operator: str, value: str) -> Callable[[Object], bool]:
    """One field requirement as a test of an object."""
    path = tuple(field.split("."))
    wanted = operator == "="
    return lambda item: (_field_value(item, path) == value) == wanted


def _field_value(item: Object, path: tuple[str, ...]) -> str:
    """The field as text; absent fields are empty, or false or 0 where the type says so."""
    value: Any = item
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
        if value is None:
            break
    if path == ("source",):
        value = (item.get("source") or {}).get("component") or item.get("reportingComponent")
    if path == ("reportingComponent",):
        value = item.get("reportingComponent") or (item.get("source") or {}).get("component")
    if path[-1] in {"unschedulable", "hostNetwork"}:
        return "true" if value else "false"
    if path[-1] in {"successful", "replicas"}:
        return str(value or 0)
    return "" if value is None else str(value)
