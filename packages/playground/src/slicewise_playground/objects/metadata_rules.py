"""The rules for names, labels and annotations."""

import re
from collections.abc import Mapping
from typing import Any

from slicewise_playground.objects.errors import FieldError, bad_value, required
from slicewise_playground.objects.resources import ApiResource, Object

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

ANNOTATION_BYTES = 256 * 1024


def is_subdomain(text: str) -> bool:
    """Whether the text is a lowercase RFC 1123 subdomain."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def is_label(text: str) -> bool:
    """Whether the text is a lowercase RFC 1123 label."""
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def check_metadata(resource: ApiResource, item: Object) -> list[FieldError]:
    """What is wrong with the metadata."""
    metadata = item["metadata"]
    name = metadata.get("name") or ""
    problems = [] if name else [required("metadata.name", "name or generateName is required")]
    if name:
        problems += _check_name(resource, name)
    problems += _check_labels("metadata.labels", metadata.get("labels") or {})
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        problems += _check_key("metadata.annotations", key.lower())
    size = sum(len(key) + len(value) for key, value in annotations.items())
    if size > ANNOTATION_BYTES:
        words = f"may not be more than {ANNOTATION_BYTES} bytes"
        problems.append(FieldError("metadata.annotations", "FieldValueTooLong", words))
    for finalizer in metadata.get("finalizers") or []:
        problems += _check_key("metadata.finalizers", finalizer)
    return problems


def check_selector_labels(field: str, labels: Mapping[str, Any]) -> list[FieldError]:
    """What is wrong with labels outside the metadata."""
    return _check_labels(field, labels)


def _check_name(resource: ApiResource, name: str) -> list[FieldError]:
    """What is wrong with the name."""
    if resource.group == "rbac.authorization.k8s.io":
        if name in {".", ".."} or "/" in name or "%" in name:
            return [bad_value("metadata.name", name, "must be one step of a path")]
    elif resource.kind == "Namespace":
        if not is_label(name):
            return [bad_value("metadata.name", name, "must be a lowercase RFC 1123 label")]
    elif resource.kind == "Service":
        if len(name) > 63 or _SERVICE.fullmatch(name) is None:
            return [bad_value("metadata.name", name, "must be a DNS-1035 label")]
    elif not is_subdomain(name):
        return [bad_value("metadata.name", name, "must be a lowercase RFC 1123 subdomain")]
    return []


def _check_labels(field: str, labels: Mapping[str, Any]) -> list[FieldError]:
    """What is wrong with labels."""
    problems: list[FieldError] = []
    for key, value in labels.items():
        problems += _check_key(field, key)
        if value and (len(value) > 63 or _WORD.fullmatch(value) is None):
            words = "must be at most 63 letters, digits, '-', '_' or '.', starting and ending alike"
            problems.append(bad_value(field, value, words))
    return problems


def _check_key(field: str, key: str) -> list[FieldError]:
    """What is wrong with the key of a label or annotation."""
    prefix, slash, name = key.rpartition("/")
    problems = []
    if slash and not is_subdomain(prefix):
        problems.append(bad_value(field, key, "prefix part must be a lowercase RFC 1123 subdomain"))
    if len(name) > 63 or _WORD.fullmatch(name) is None:
        words = "name part must be letters, digits, '-', '_' or '.', starting and ending alike"
        problems.append(bad_value(field, key, words))
    return problems
