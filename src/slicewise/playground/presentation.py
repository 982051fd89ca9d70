"""Answers in the view that the client accepts."""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from slicewise.httpd import Request, Response
from slicewise.playground.listing import Page
from slicewise.playground.negotiation import PARTIAL, TABLE, View, negotiate
from slicewise.playground.resources import Object, Resource
from slicewise.playground.store import Entry
from slicewise.playground.tables import Drawing
from slicewise.playground.views import (
    encode_event,
    encode_list,
    encode_partial_list,
    encode_whole,
    partial_metadata,
    show,
)
from slicewise.playground.watching import Paint


@dataclass(frozen=True, slots=True)
class Presentation:
    """How one request wants its objects shown."""

    resource: Resource
    view: View
    drawing: Drawing

    @classmethod
    def read(cls, resource: Resource, request: Request, now: datetime) -> "Presentation":
        """The presentation a request asks for, or 406."""
        include = request.query.get("includeObject") or "Metadata"
        view = negotiate(request.headers.get("accept", ""))
        return cls(resource, view, Drawing(resource.kind, now, include))

    def one(self, entry: Entry, status: int = 200) -> Response:
        """An answer with one object."""
        if self.view.shape == TABLE:
            metadata = {"resourceVersion": str(entry.revision)}
            body = msgspec.json.encode(self.drawing.table([self._item(entry)], metadata))
        elif self.view.shape == PARTIAL:
            body = msgspec.json.encode(partial_metadata(entry.object))
        else:
            body = encode_whole(self.resource, entry) + b"\n"
        return Response(status, body, self.view.content_type)

    def many(self, page: Page) -> Response:
        """An answer with a page of a list."""
        if self.view.shape == TABLE:
            items = [self._item(entry) for entry in page.entries]
            body = msgspec.json.encode(self.drawing.table(items, page.metadata()))
        elif self.view.shape == PARTIAL:
            body = encode_partial_list(page.metadata(), page.entries)
        else:
            body = encode_list(self.resource, page.metadata(), page.entries)
        return Response(200, body, self.view.content_type)

    def some(self, entries: list[Entry], revision: int) -> Response:
        """An answer with these objects."""
        return self.many(Page(entries, revision, "", None))

    def painter(self) -> Paint | None:
        """How a watch draws its events; None when it shows whole objects."""
        if self.view.shape == TABLE:
            return _TablePaint(self)
        if self.view.shape == PARTIAL:
            return _paint_partial
        return None

    def _item(self, entry: Entry) -> Object:
        """The object for a table; only includeObject=Object shows more than its metadata."""
        if self.drawing.include != "Object":
            return entry.object
        head = {"kind": self.resource.kind, "apiVersion": self.resource.group_version}
        return {**head, **show(self.resource, entry.object)}


class _TablePaint:
    """Draws each event as a table of one row, with the columns in the first."""

    def __init__(self, presentation: Presentation) -> None:
        """Draw for one presentation."""
        self._presentation = presentation
        self._head = True

    def __call__(self, kind: str, entry: Entry) -> bytes:
        """One event as a line of the watch."""
        drawing = self._presentation.drawing
        metadata = {"resourceVersion": str(entry.revision)}
        table = drawing.table([self._presentation._item(entry)], metadata, head=self._head)
        self._head = False
        return encode_event(kind, msgspec.json.encode(table))


def _paint_partial(kind: str, entry: Entry) -> bytes:
    """An event with the metadata alone."""
    return encode_event(kind, msgspec.json.encode(partial_metadata(entry.object)))
