"""Lists: which objects at which revision, in pages that share one revision."""

import base64
import binascii
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import msgspec

from slicewise_playground.objects.errors import (
    ApiError,
    FieldError,
    bad_request,
    expired,
    forbidden_field,
    too_large_revision,
)
from slicewise_playground.objects.resources import ApiResource, Object
from slicewise_playground.objects.selectors import Selection
from slicewise_playground.objects.store import ObjectStore, StoredObject, StoreKey

MATCHES = ("Exact", "NotOlderThan")


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list."""

    entries: list[StoredObject]
    revision: int
    token: str
    remaining: int | None

    def metadata(self) -> Object:
        """The metadata of the list."""
        fields: Object = {"resourceVersion": str(self.revision)}
        if self.token:
            fields["continue"] = self.token
        if self.remaining is not None:
            fields["remainingItemCount"] = self.remaining
        return fields


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a page begins: at a revision, after a key."""

    revision: int | None
    after: StoreKey | None
    limit: int


def list_page(
    store: ObjectStore, resource: ApiResource, selection: Selection, query: Mapping[str, str]
) -> ListPage:
    """The page that the query asks for."""
    start = _read_start(store, resource, query)
    with store.lock:
        home = store.collections[resource.collection]
        if start.revision is None or start.revision == store.revision:
            entries, keys, revision = home.entries, home.ordered(), store.revision
        else:
            _check_history(store, resource, start)
            entries = home.at(start.revision)
            keys, revision = sorted(entries), start.revision
        if selection.name and selection.namespace:
            keys = [key for key in [(selection.namespace, selection.name)] if key in entries]
        first, last = _span(keys, selection.namespace, start.after)
        picked: list[StoreKey] = []
        for key in islice(keys, first, last):
            if selection.everything or selection.matches(entries[key].object):
                picked.append(key)
                if start.limit and len(picked) > start.limit:
                    break
        found = [entries[key] for key in picked[: start.limit or None]]
        if not start.limit or len(picked) <= start.limit:
            return ListPage(found, revision, "", None)
        token = _write_token(revision, picked[start.limit - 1])
        remaining = last - first - start.limit if selection.everything else None
        return ListPage(found, revision, token, remaining)


def _span(keys: list[StoreKey], namespace: str, after: StoreKey | None) -> tuple[int, int]:
    """The range of keys in a namespace, or in all, after a key."""
    first, last = 0, len(keys)
    if namespace:
        first = bisect_left(keys, (namespace, ""))
        last = bisect_left(keys, (namespace + "\0", ""))
    if after is not None:
        first = max(first, bisect_right(keys, after))
    return first, last


def read_number(query: Mapping[str, str], name: str) -> int:
    """A count from the query; absent is 0."""
    text = query.get(name) or "0"
    try:
        return int(text)
    except ValueError as error:
        raise bad_request(f"{name}={text!r}: expected a number") from error


def read_flag(query: Mapping[str, str], name: str) -> bool:
    """A yes or no from the query: whatever is there and is neither false nor 0 means yes."""
    text = query.get(name)
    return text is not None and text.lower() not in {"false", "0"}


def read_revision(text: str) -> int:
    """A resourceVersion as a number; outside lists the real server calls others internal errors."""
    if not text.isdecimal():
        raise ApiError(500, "", f'resourceVersion: Invalid value: "{text}": expected a number')
    return int(text)


def check_options(query: Mapping[str, str], *, watch: bool) -> None:
    """Refuse combinations of options that contradict each other."""
    problems: list[FieldError] = []
    match = query.get("resourceVersionMatch")
    initial = query.get("sendInitialEvents") is not None
    if match and not initial:
        if watch:
            words = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is set"
            problems.append(forbidden_field("resourceVersionMatch", words))
        elif not query.get("resourceVersion"):
            words = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            problems.append(forbidden_field("resourceVersionMatch", words))
        elif query.get("continue"):
            words = "resourceVersionMatch is forbidden when continue is provided"
            problems.append(forbidden_field("resourceVersionMatch", words))
    if match and match not in MATCHES:
        words = f'Unsupported value: "{match}"'
        problems.append(FieldError("resourceVersionMatch", "FieldValueNotSupported", words))
    if initial and not watch:
        words = "sendInitialEvents is forbidden for list"
        problems.append(forbidden_field("sendInitialEvents", words))
    if initial and watch and match != "NotOlderThan":
        words = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        problems.append(forbidden_field("resourceVersionMatch", words))
    if problems:
        raise _invalid_options(problems)


def _invalid_options(problems: list[FieldError]) -> ApiError:
    """422 about the options of a list."""
    words = ", ".join(f"{problem.field}: {problem.message}" for problem in problems)
    causes = [
        {"reason": problem.reason, "message": problem.message, "field": problem.field}
        for problem in problems
    ]
    details = {"group": "meta.k8s.io", "kind": "ListOptions", "causes": causes}
    message = f'ListOptions.meta.k8s.io "" is invalid: {words}'
    return ApiError(422, "Invalid", message, details=details)


def _read_start(store: ObjectStore, resource: ApiResource, query: Mapping[str, str]) -> _Start:
    """Where the page begins."""
    limit = read_number(query, "limit")
    text = query.get("resourceVersion") or ""
    if query.get("continue"):
        if text and text != "0":
            raise bad_request("specifying resource version is not allowed when using continue")
        return _read_token(query["continue"], limit)
    if text in {"", "0"}:
        # Any cached state will do for 0, and the real server serves it whole.
        return _Start(None, None, 0 if text == "0" else limit)
    if not text.isdecimal():
        raise bad_request(f'resourceVersion: Invalid value: "{text}": expected a number')
    revision = int(text)
    if revision > store.revision:
        raise too_large_revision(revision, store.revision)
    exact = query.get("resourceVersionMatch") == "Exact" or (
        limit > 0 and not query.get("resourceVersionMatch")
    )
    if exact:
        store.check_revision(resource.collection, revision)
        return _Start(revision, None, limit)
    return _Start(None, None, limit)


def _check_history(store: ObjectStore, resource: ApiResource, start: _Start) -> None:
    """Refuse a page whose revision the history no longer reaches."""
    assert start.revision is not None
    if start.revision < store.collections[resource.collection].floor:
        if start.after is None:
            raise expired(f"The resourceVersion for the provided list is too old: {start.revision}")
        raise expired(
            "The provided continue parameter is too old to display a consistent list result. "
            "You must start a new list without the continue parameter."
        )


def _write_token(revision: int, after: StoreKey) -> str:
    """The continue token that begins after a key."""
    body = msgspec.json.encode({"rv": revision, "after": list(after)})
    return base64.urlsafe_b64encode(body).decode().rstrip("=")


def _read_token(token: str, limit: int) -> _Start:
    """What a continue token says."""
    try:
        body = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, name = body["after"]
        return _Start(int(body["rv"]), (namespace, name), limit)
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise bad_request("continue key is not valid") from error
