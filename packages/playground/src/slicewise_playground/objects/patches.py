"""The patch formats: JSON merge, JSON patch and strategic merge.

Each takes the stored object and the patch, and returns a new object; neither input is changed.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from slicewise.model import SlicewiseError
from slicewise_playground.objects.errors import ApiError, bad_request

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class JsonPatchError(SlicewiseError):
    """A JSON patch that does not fit the object."""


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: null deletes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def apply_json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902: all operations in order, or an ApiError."""
    if not isinstance(operations, list):
        raise bad_request("json patch: expected a list of operations")
    document = copy.deepcopy(target)
    try:
        for operation in operations:
            document = _apply_one(document, operation)
    except JsonPatchError as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise ApiError(422, "Invalid", message) from error
    return document


def _apply_one(document: Any, operation: Mapping[str, Any]) -> Any:
    """The document after one operation."""
    if not isinstance(operation, dict) or str(operation.get("op")) not in _OPERATIONS:
        raise bad_request(f"json patch: unknown operation {operation!r}")
    if not isinstance(operation.get("path"), str):
        raise bad_request(f"json patch: operation {operation!r} has no path")
    if not isinstance(operation.get("from", ""), str):
        raise bad_request(f"json patch: operation {operation!r} comes from no path")
    return _OPERATIONS[str(operation["op"])](document, operation)


def _pointer(path: str) -> list[str]:
    """The steps of a JSON pointer."""
    if path == "":
        return []
    if not path.startswith("/"):
        raise JsonPatchError(f"path {path!r}: expected a leading /")
    return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]


def _walk(document: Any, steps: list[str]) -> Any:
    """The value at the end of the steps."""
    for step in steps:
        if isinstance(document, list):
            document = document[_index(document, step, len(document) - 1)]
        elif isinstance(document, dict) and step in document:
            document = document[step]
        else:
            raise JsonPatchError(f"missing path step {step!r}")
    return document


def _index(items: list[Any], step: str, last: int) -> int:
    """The step as a place in the list."""
    try:
        place = int(step)
    except ValueError as error:
        raise JsonPatchError(f"list index {step!r}: expected a number") from error
    if place < 0:
        place += len(items)
    if not 0 <= place <= last:
        raise JsonPatchError(f"list index {step}: the list has {len(items)} items")
    return place


def _add(document: Any, operation: Mapping[str, Any]) -> Any:
    """Add or overwrite a member, or insert into a list."""
    return _put(document, _pointer(operation["path"]), copy.deepcopy(operation.get("value")))


def _put(document: Any, steps: list[str], value: Any) -> Any:
    """The document with a value added."""
    if not steps:
        return value
    parent = _walk(document, steps[:-1])
    if isinstance(parent, list):
        last = steps[-1]
        parent.insert(len(parent) if last == "-" else _index(parent, last, len(parent)), value)
    elif isinstance(parent, dict):
        parent[steps[-1]] = value
    else:
        raise JsonPatchError(f"{'/'.join(steps)}: the parent is neither object nor list")
    return document


def _remove(document: Any, operation: Mapping[str, Any]) -> Any:
    """Remove an existing member or list item."""
    steps = _pointer(operation["path"])
    _walk(document, steps)
    parent = _walk(document, steps[:-1])
    if isinstance(parent, list):
        del parent[_index(parent, steps[-1], len(parent) - 1)]
    else:
        del parent[steps[-1]]
    return document


def _replace(document: Any, operation: Mapping[str, Any]) -> Any:
    """Replace an existing value."""
    steps = _pointer(operation["path"])
    _walk(document, steps)
    if not steps:
        return copy.deepcopy(operation.get("value"))
    parent = _walk(document, steps[:-1])
    place = _index(parent, steps[-1], len(parent) - 1) if isinstance(parent, list) else steps[-1]
    parent[place] = copy.deepcopy(operation.get("value"))
    return document


def _move(document: Any, operation: Mapping[str, Any]) -> Any:
    """Move a value to another place."""
    value = _walk(document, _pointer(operation.get("from", "")))
    document = _remove(document, {"path": operation.get("from", "")})
    return _put(document, _pointer(operation["path"]), value)


def _copy(document: Any, operation: Mapping[str, Any]) -> Any:
    """Copy a value to another place."""
    value = copy.deepcopy(_walk(document, _pointer(operation.get("from", ""))))
    return _put(document, _pointer(operation["path"]), value)


def _test(document: Any, operation: Mapping[str, Any]) -> Any:
    """The unchanged document, provided that the value is as expected."""
    found = _walk(document, _pointer(operation["path"]))
    if found != operation.get("value"):
        raise JsonPatchError(f"testing path {operation['path']}: the value differs")
    return document


_OPERATIONS: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
