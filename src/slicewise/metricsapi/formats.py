"""Which form a client wants: the original's bare documents, Kubernetes' objects, or a table;
and which objects, by name and by label.

A client that sends what only Kubernetes' own clients send gets what those understand; all
others get the original's documents to the letter.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from slicewise.httpd import HttpRequest
from slicewise.metricsapi.api_versions import (
    ApiObject,
    DocumentWriter,
    ServedResource,
)
from slicewise.metricsapi.broadcaster import ObjectEvent
from slicewise.metricsapi.tables import METADATA, Tabulator
from slicewise.model import SlicewiseError

# Parameters that the original ignored and that kubectl and client libraries send.
_KUBERNETES: Final = frozenset(
    {
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "allowWatchBookmarks",
        "sendInitialEvents",
        "timeoutSeconds",
        "fieldSelector",
        "labelSelector",
    }
)
_NAME: Final = "metadata.name"
RAW: Final = "raw"
OBJECTS: Final = "objects"
TABLE: Final = "table"


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    name: str
    writer: DocumentWriter
    resource: ServedResource
    tabulator: Tabulator

    @property
    def kubernetes(self) -> bool:
        """Whether the client follows Kubernetes' rules of listing and watching."""
        return self.name != RAW

    def write_frame(self, revision: int) -> tuple[bytes, bytes]:
        """What stands before and after the items of a list."""
        api_version = self.writer.api_version
        if self.name == RAW:
            kind = b'"kind":"List","apiVersion":"v1"' if api_version.bare else b'"metadata":{}'
            return b"{" + kind + b',"items":[', b"]}\n"
        document: dict[str, object] = {
            "kind": f"{self.resource.kind}List",
            "apiVersion": api_version.name,
            "metadata": {"resourceVersion": str(revision)},
            "items": [],
        }
        if self.name == TABLE:
            document = self.tabulator.table([], revision)
        return msgspec.json.encode(document)[:-2], b"]}"

    def write_item(self, item: ApiObject) -> bytes:
        """One item of a list, or row of a table."""
        if self.name == TABLE:
            return msgspec.json.encode(self.tabulator.row(item))
        write = self.writer.write_raw if self.name == RAW else self.writer.write_object
        return msgspec.json.encode(write(self.resource, item))

    def write_event(self, event: ObjectEvent) -> bytes:
        """One line of a watch, encoded once for all who want the same."""
        key = (self.name, self.resource.name, self.tabulator.include)
        return event.write(key, self._encode)

    def _encode(self, event: ObjectEvent) -> bytes:
        shown: object
        if self.name == RAW:
            shown = self.writer.write_raw(self.resource, event.item)
            kind = "DELETED" if event.kind == "DELETED" else "SYNCED"
            bare = {"Type": kind, "Object": shown}
            line = (
                bare if self.writer.api_version.bare else {self.resource.kind: shown, "Type": kind}
            )
            return msgspec.json.encode(line) + b"\n"
        if self.name == TABLE:
            shown = self.tabulator.table([event.item], event.revision)
        else:
            shown = self.writer.write_object(self.resource, event.item)
        return msgspec.json.encode({"type": event.kind, "object": shown}) + b"\n"


def choose_format(
    request: HttpRequest,
    writer: DocumentWriter,
    resource: ServedResource,
    now: Callable[[], datetime],
) -> ResponseFormat:
    include = request.query.get("includeObject", METADATA)
    tabulator = Tabulator(writer, resource, include, now)
    if wants_table(request.headers.get("accept", "")):
        return ResponseFormat(TABLE, writer, resource, tabulator)
    named = RAW if _KUBERNETES.isdisjoint(request.query) else OBJECTS
    return ResponseFormat(named, writer, resource, tabulator)


def wants_table(accept: str) -> bool:
    """Whether the first form that can be had is a table."""
    for offer in accept.split(","):
        parts = [part.strip().lower() for part in offer.split(";")]
        if parts[0] not in ("application/json", "application/*", "*/*"):
            continue
        facts = dict(part.partition("=")[::2] for part in parts[1:])
        if facts.get("as") == "table":
            return facts.get("g") == "meta.k8s.io" and facts.get("v") in ("v1", "v1beta1")
        if "as" not in facts:
            return False
    return False


class SelectorError(SlicewiseError):
    """A selector that cannot be served."""


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """One condition: the value of a key is this, or is not."""

    key: str
    value: str
    equal: bool


def read_selector(query: Mapping[str, str], writer: DocumentWriter) -> Callable[[ApiObject], bool]:
    """Whether an object is wanted, by the selectors of a request."""
    fields = _read_terms("fieldSelector", query.get("fieldSelector", ""))
    for term in fields:
        if term.key != _NAME:
            raise SelectorError(f"fieldSelector {term.key!r}: expected {_NAME}")
    labels = _read_terms("labelSelector", query.get("labelSelector", ""))
    if not fields and not labels:
        return lambda _: True

    def wanted(item: ApiObject) -> bool:
        metadata = writer.write_metadata(item)
        own = metadata.get("labels", {})
        return all((metadata["name"] == t.value) == t.equal for t in fields) and all(
            (own.get(t.key) == t.value) == t.equal for t in labels
        )

    return wanted


def _read_terms(parameter: str, text: str) -> list[SelectorTerm]:
    terms = []
    for part in filter(None, text.split(",")):
        for sign in ("!=", "==", "="):
            key, found, value = part.partition(sign)
            if found:
                terms.append(SelectorTerm(key.strip(), value.strip(), sign != "!="))
                break
        else:
            raise SelectorError(f"{parameter} {part!r}: expected key=value or key!=value")
    return terms
