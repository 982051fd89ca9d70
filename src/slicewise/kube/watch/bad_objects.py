"""Objects off the wire that cannot be read: who they are, and when to look at them again.

One bad object never costs the others of its list or watch; what was last known of it goes on
counting until it is good or gone.
"""

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import msgspec
import structlog

from slicewise.kube.objects import BareBody, ListBody, ListMetadata, Metadata
from slicewise.model.backoff import Backoff

UNREADABLE: Final = (ValueError, RecursionError)
"""What decoding raises: malformed JSON, wrong types, bytes that are no UTF-8, deep nesting."""
_log = structlog.get_logger(__name__)
_BARE: Final = msgspec.json.Decoder(BareBody)
_RAW_LIST: Final = msgspec.json.Decoder(ListBody[msgspec.Raw])
# The API server writes who an object is before anything that its owner may choose.
_FACTS: Final = re.compile(rb'"(name|namespace|uid)":"([^"\\]{1,253})"')
_CHOSEN: Final = re.compile(rb'"(?:labels|annotations|ownerReferences|managedFields|spec)":')
_ITEMS: Final = b'"items":['
# No string holds this, because quotes in strings are escaped.
_NEXT_ITEM: Final = b',{"metadata":{'
_HEAD_BYTES: Final = 4096
_REPORTED: Final = 1000
_CALM_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class BadObject:
    """An object that was skipped; `name` is namespace/name as far as that can be told."""

    resource: str
    name: str
    reason: str


class BadObjects:
    """The objects of one resource that could not be taken in, until they are good or gone."""

    def __init__(self, resource: str, retry: Backoff) -> None:
        self.total = 0
        """How often an object was skipped."""
        self._resource = resource
        self._retry = retry
        self._found: dict[str, BadObject] = {}
        self._tries = 0
        self.due: float | None = None
        """When to list everything again, for what garbled an object may have been the way here."""
        self._last_at = 0.0

    @property
    def found(self) -> Mapping[str, BadObject]:
        """What is skipped at present, by key."""
        return MappingProxyType(self._found)

    def add(self, key: str, name: str, error: Exception, now: float) -> None:
        """Remember and report an object, and have everything listed again in a while."""
        self.total += 1
        bad = BadObject(self._resource, name, f"{type(error).__name__}: {error}"[:500])
        if self._found.get(key) != bad:
            _log.error("object skipped", resource=bad.resource, name=name, reason=bad.reason)
        if key in self._found or len(self._found) < _REPORTED:
            self._found[key] = bad
        self.recheck(now)

    def recheck(self, now: float) -> None:
        """Have everything listed again in a while."""
        if now - self._last_at > _CALM_SECONDS:
            self._tries = 0
        self._last_at = now
        if self.due is None:
            self._put_off(now)

    def discard(self, key: str) -> None:
        """The object is good or gone."""
        if self._found and self._found.pop(key, None) is not None:
            _log.info("object is good or gone", resource=self._resource, key=key)

    def settle(self, still_bad: set[str], now: float) -> None:
        """Everything was listed, and only these could not be read."""
        for key in set(self._found) - still_bad:
            self.discard(key)
        self.due = None
        if self._found:
            self._put_off(now)

    def is_due(self, now: float) -> bool:
        """Whether to list everything again now."""
        return self.due is not None and now >= self.due

    def _put_off(self, now: float) -> None:
        self._tries += 1
        self.due = now + self._retry.delay(self._tries, 1.0)


def identify(content: bytes) -> Metadata | None:
    """Who an unreadable object is; None when not even that can be told."""
    try:
        return _BARE.decode(content).metadata
    except UNREADABLE:
        pass
    start = content.find(b'"metadata":{')
    head = content[start : start + _HEAD_BYTES] if start >= 0 else b""
    chosen = _CHOSEN.search(head)
    facts: dict[bytes, str] = {}
    for word, value in _FACTS.findall(head if chosen is None else head[: chosen.start()]):
        facts.setdefault(word, value.decode(errors="replace"))
    if not facts:
        return None
    name, namespace, uid = (facts.get(word, "") for word in (b"name", b"namespace", b"uid"))
    return Metadata(name, namespace, uid)


def check_text(content: bytes) -> bytes:
    """The same bytes; raises where they are no UTF-8, which decoders tolerate in what they skip."""
    if not content.isascii():
        content.decode()
    return content


def name_unknown(content: bytes) -> str:
    """A key for an object of which nothing can be told, the same whenever it is met."""
    return f"unknown object {zlib.crc32(content):08x}"


def split_page(content: bytes) -> tuple[ListMetadata, list[bytes], bool]:
    """A page's metadata and its objects, each not yet read; raises when the page has no frame.

    The last says whether they are certainly told apart, so that none hides in another.
    """
    try:
        page = _RAW_LIST.decode(check_text(content))
    except UNREADABLE:
        head, found, rest = content.partition(_ITEMS)
        if not found:
            raise
        # A frame that is not exact could lose the token of the next page.
        metadata = _RAW_LIST.decode(check_text(head) + _ITEMS + b"]}").metadata
        first, *others = rest.rstrip().removesuffix(b"}").removesuffix(b"]").split(_NEXT_ITEM)
        return metadata, [first, *(_NEXT_ITEM[1:] + each for each in others)], False
    return page.metadata, [bytes(each) for each in page.items or ()], True
