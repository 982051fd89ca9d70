"""The objects of one resource as lists and watches tell of them, handed over as changes.

Versions decide: what is repeated or older than what is known changes nothing. An object that
cannot be read, or that the handler fails on, is skipped and reported; the others are not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import structlog

from slicewise.kube.errors import LostError, RefusedError
from slicewise.kube.objects import (
    BareBody,
    ListBody,
    ListMetadata,
    Metadata,
    StatusBody,
    WatchBody,
    WatchLine,
    read_version,
)
from slicewise.kube.watch.bad_objects import (
    UNREADABLE,
    BadObjects,
    check_text,
    identify,
    name_unknown,
    split_page,
)

_log = structlog.get_logger(__name__)
_LINE: Final = msgspec.json.Decoder(WatchBody)
_BARE: Final = msgspec.json.Decoder(BareBody)
_REFUSAL: Final = msgspec.json.Decoder(StatusBody)
_SEEN: Final = frozenset(("ADDED", "MODIFIED"))
_CHANGES: Final = frozenset((*_SEEN, "DELETED"))


class KubeObject(Protocol):
    """An object off the wire."""

    @property
    def metadata(self) -> Metadata:
        """Who it is and in which version."""

    @property
    def kind(self) -> str:
        """What it is; empty in lists, which say it once for all."""


B = TypeVar("B", bound=KubeObject)
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Seen(Generic[V_co]):
    """An object was listed, added or changed; `new` when it was not known before."""

    value: V_co
    new: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """An object was deleted, left the selection, or was missing when listed again."""

    key: str
    version: int


WatchEvent = Seen[V] | Gone
KeyedEvent = tuple[str, WatchEvent[V]]
Content = bytes | msgspec.Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSource(Generic[B, V]):
    """What to watch, how its objects are decoded and what their key is."""

    resource: str
    path: str
    body: type[B]
    read: Callable[[B], V]
    key: Callable[[Metadata], str]
    kind: str = ""
    """The kind of its objects, of which watches skip all others; empty where none is watched."""
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Listing:
    """What one list has shown so far."""

    version: str = ""
    keys: set[str] = field(default_factory=set)
    bad: set[str] = field(default_factory=set)
    older: str = ""
    """The name of an object that is older than what was heard of it; empty without one."""
    told: frozenset[str] = frozenset()
    """The keys that were heard of otherwise before the list began."""
    complete: bool = True
    """Whether every object could be told apart, so that whatever is missing is gone."""


class WatchedObjects(Generic[B, V]):
    """The versions that are known of one resource's objects, and those that are skipped."""

    def __init__(
        self,
        source: WatchSource[B, V],
        handle: Callable[[Sequence[WatchEvent[V]]], None],
        bad: BadObjects,
        clock: Callable[[], float],
    ) -> None:
        self.version = ""
        """The version to watch from."""
        self.known: dict[str, int] = {}
        self.newest = 0
        """The highest version of any list or change."""
        self.frames = 0
        """How many lines of a watch were whole, whatever was in them."""
        self._source = source
        self._handle = handle
        self._bad = bad
        self._clock = clock
        self._item = msgspec.json.Decoder(source.body)
        # The struct is generic, and its decoder is made for this very resource.
        body: Any = source.body
        self._page: msgspec.json.Decoder[ListBody[B]] = msgspec.json.Decoder(ListBody[body])
        self._line: msgspec.json.Decoder[WatchLine[B]] = msgspec.json.Decoder(WatchLine[body])

    def decode_page(self, content: bytes, listing: Listing) -> tuple[ListMetadata, list[B]]:
        """The page with those of its objects that can be decoded; raises when it has no frame."""
        try:
            page = self._page.decode(check_text(content))
        except UNREADABLE:
            metadata, pieces, exact = split_page(content)
            listing.complete = listing.complete and exact
        else:
            return page.metadata, page.items or []
        bodies = []
        for piece in pieces:
            try:
                bodies.append(self._item.decode(check_text(piece)))
            except UNREADABLE as error:
                self._skip(error, identify(piece), piece, listing)
        return metadata, bodies

    def take_page(self, bodies: Sequence[B], listing: Listing) -> None:
        """Hand over what is new in a page."""
        self._deliver([self._learn(body, b"", listing) for body in bodies], listing)

    def finish_list(self, listing: Listing) -> int:
        """Hand over as gone what the whole list did not show; how many those are."""
        at = read_version(listing.version)
        lost = []
        if listing.complete:
            known, keys = self.known.items(), listing.keys
            lost = [key for key, version in known if key not in keys and version <= at]
            lost += sorted(listing.told - keys - self.known.keys())
        for key in lost:
            self.known.pop(key, None)
        self._deliver([(key, Gone(key, at)) for key in lost], listing)
        self.version = listing.version
        self.newest = max(self.newest, at)
        self._bad.settle(listing.bad, self._clock())
        if not listing.complete:
            self._bad.recheck(self._clock())
        return len(lost)

    def take_lines(self, lines: Sequence[bytes]) -> None:
        """Hand over the changes in these lines of a watch, and those before one that ends it."""
        changes: list[KeyedEvent[V] | None] = []
        try:
            for line in lines:
                changes.append(self._take(line))  # noqa: PERF401 - those before a failure count
        finally:
            self._deliver(changes)

    def _take(self, line: bytes) -> KeyedEvent[V] | None:
        """One line of the watch as a change; None for bookmarks and what changes nothing."""
        try:
            seen = self._line.decode(check_text(line))
        except UNREADABLE:
            return self._take_apart(line)
        if seen.type not in _SEEN:
            return self._take_apart(line)
        self.frames += 1
        try:
            return self._learn(seen.object, line) if self._advance(seen.object.metadata) else None
        except UNREADABLE as error:
            self._skip(error, seen.object.metadata, line)
            return None

    def _take_apart(self, line: bytes) -> KeyedEvent[V] | None:
        """The same of a line that shows no object, or one that cannot be read."""
        try:
            event = _LINE.decode(check_text(line))
            if event.type == "BOOKMARK":
                self._advance(_BARE.decode(event.object).metadata, repeats=True)
                self.frames += 1
                return None
        except UNREADABLE as error:
            self._skip(error, identify(line), line)
            return None
        if event.type == "ERROR":
            raise _read_refusal(event.object)
        self.frames += 1
        content = event.object
        try:
            if event.type not in _CHANGES:
                raise ValueError(f"type {event.type[:50]!r}: expected ADDED, MODIFIED or DELETED")
            if event.type == "DELETED":
                bare = _BARE.decode(content)
                return self._lose(bare) if self._advance(bare.metadata) else None
            body = self._item.decode(content)
            return self._learn(body, content) if self._advance(body.metadata) else None
        except UNREADABLE as error:
            self._skip(error, identify(bytes(content)), content)
            return None

    def _lose(self, body: BareBody) -> KeyedEvent[V]:
        key = self._read_key(body)
        self.known.pop(key, None)
        self._bad.discard(key)
        return key, Gone(key, read_version(body.metadata.resource_version))

    def _learn(
        self, body: B, content: Content, listing: Listing | None = None
    ) -> KeyedEvent[V] | None:
        """The object as a change, unless it is as old as what is known of it."""
        try:
            key = self._read_key(body)
            version = read_version(body.metadata.resource_version)
            known = self.known.get(key)
            value = None
            if not version or known is None or known < version:
                value = self._source.read(body)
        except Exception as error:
            self._skip(error, body.metadata, content, listing)
            return None
        if listing is not None:
            listing.keys.add(key)
            if known is not None and 0 < version < known:
                listing.older = _join(body.metadata.namespace, body.metadata.name)
        self._bad.discard(key)
        if value is None:
            return None
        self.known[key] = version
        return key, Seen(value, known is None)

    def _read_key(self, body: KubeObject) -> str:
        if body.kind and body.kind != self._source.kind:
            raise ValueError(f"kind {body.kind[:50]!r}: expected {self._source.kind!r}")
        key = self._source.key(body.metadata)
        if not key:
            raise ValueError("metadata: expected a name and a UID")
        return key

    def _advance(self, metadata: Metadata, *, repeats: bool = False) -> bool:
        """Watch from this version on; false when it was heard before, so that it is no news."""
        version, last = read_version(metadata.resource_version), read_version(self.version)
        if last and not version:
            raise ValueError(f"resourceVersion {metadata.resource_version[:50]!r}: expected digits")
        if version < last or (version == last != 0 and not repeats):
            # Watches never go back, so something on the way does.
            self._bad.recheck(self._clock())
            return False
        self.version = metadata.resource_version
        self.newest = max(self.newest, version)
        return True

    def _deliver(
        self, changes: Sequence[KeyedEvent[V] | None], listing: Listing | None = None
    ) -> None:
        """Hand over changes; if the handler fails, one by one, so that only the bad one is lost."""
        real = [change for change in changes if change is not None]
        if not real:
            return
        try:
            self._handle([change for _, change in real])
        except Exception:
            _log.exception("changes not taken in", resource=self._source.resource)
        else:
            return
        for key, change in real:
            try:
                self._handle([change])
            except Exception as error:
                # Whatever the next list says of it is news.
                self.known[key] = 0
                self._bad.add(key, _describe(change, key), error, self._clock())
                if listing is not None:
                    listing.bad.add(key)

    def _skip(
        self,
        error: Exception,
        metadata: Metadata | None,
        content: Content,
        listing: Listing | None = None,
    ) -> None:
        """Report an object that cannot be read; what is known of it goes on counting."""
        key = "" if metadata is None else self._source.key(metadata)
        if listing is not None and key:
            listing.keys.add(key)
        elif listing is not None:
            listing.complete = False
        unknown = name_unknown(bytes(content))
        name = unknown if metadata is None else _join(metadata.namespace, metadata.name) or unknown
        self._bad.add(key or name, name, error, self._clock())
        if listing is not None:
            listing.bad.add(key or name)


def _read_refusal(content: msgspec.Raw) -> Exception:
    try:
        status = _REFUSAL.decode(content)
    except UNREADABLE as error:
        return LostError(f"a watch ended with an error that cannot be read: {error}")
    return RefusedError(status.code, status.reason, status.message)


def _describe(change: WatchEvent[V], key: str) -> str:
    value = change.value if isinstance(change, Seen) else None
    return _join(getattr(value, "namespace", ""), getattr(value, "name", "")) or key


def _join(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
