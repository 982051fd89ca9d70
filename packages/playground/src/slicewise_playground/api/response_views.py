"""Answers in the view that the client accepts."""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from slicewise.httpd import HttpRequest, HttpResponse
from slicewise_playground.api.encodings import (
    encode_event,
    encode_list,
    encode_partial_list,
    encode_whole,
    partial_metadata,
    show,
)
from slicewise_playground.api.lists import ListPage
from slicewise_playground.api.negotiation import PARTIAL, TABLE, RequestedView, negotiate
from slicewise_playground.api.printer_tables import TablePrinter
from slicewise_playground.api.watches import EventEncoder
from slicewise_playground.objects.resources import ApiResource, Object
from slicewise_playground.objects.store import StoredObject


@dataclass(frozen=True, slots=True)
class ResponseView:
    """How one request wants its objects shown."""

    resource: ApiResource
    view: RequestedView
    drawing: TablePrinter

    @classmethod
    def read(cls, resource: ApiResource, request: HttpRequest, now: datetime) -> "ResponseView":
        """The presentation a request asks for, or 406."""
        include = request.query.get("includeObject") or "Metadata"
        view = negotiate(request.headers.get("accept", ""))
        return cls(resource, view, TablePrinter(resource.kind, now, include))

    def one(self, entry: StoredObject, status: int = 200) -> HttpResponse:
        """An answer with one object."""
        if self.view.shape == TABLE:
            metadata = {"resourceVersion": str(entry.revision)}
            body = msgspec.json.encode(self.drawing.table([self._item(entry)], metadata))
        elif self.view.shape == PARTIAL:
            body = msgspec.json.encode(partial_metadata(entry.object))
        else:
            body = encode_whole(self.resource, entry) + b"\n"
        return HttpResponse(status, body, self.view.content_type)

    def many(self, page: ListPage) -> HttpResponse:
        """An answer with a page of a list."""
        if self.view.shape == TABLE:
            items = [self._item(entry) for entry in page.entries]
            body = msgspec.json.encode(self.drawing.table(items, page.metadata()))
        elif self.view.shape == PARTIAL:
            body = encode_partial_list(page.metadata(), page.entries)
        else:
            body = encode_list(self.resource, page.metadata(), page.entries)
        return HttpResponse(200, body, self.view.content_type)

    def some(self, entries: list[StoredObject], revision: int) -> HttpResponse:
        """An answer with these objects."""
        return self.many(ListPage(entries, revision, "", None))

    def encoder(self) -> EventEncoder | None:
        """How a watch draws its events; None when it shows whole objects."""
        if self.view.shape == TABLE:
            return _TableEncoder(self)
        if self.view.shape == PARTIAL:
            return _encode_partial
        return None

    def _item(self, entry: StoredObject) -> Object:
        """The object for a table; only includeObject=Object shows more than its metadata."""
        if self.drawing.include != "Object":
            return entry.object
        head = {"kind": self.resource.kind, "apiVersion": self.resource.group_version}
        return {**head, **show(self.resource, entry.object)}


class _TableEncoder:
    """Draws each event as a table of one row, with the columns in the first."""

    def __init__(self, presentation: ResponseView) -> None:
        """Draw for one presentation."""
        self._presentation = presentation
        self._head = True

    def __call__(self, kind: str, entry: StoredObject) -> bytes:
        """One event as a line of the watch."""
        drawing = self._presentation.drawing
        metadata = {"resourceVersion": str(entry.revision)}
        table = drawing.table([self._presentation._item(entry)], metadata, head=self._head)
        self._head = False
        return encode_event(kind, msgspec.json.encode(table))


def _encode_partial(kind: str, entry: StoredObject) -> bytes:
    """An event with the metadata alone."""
    return encode_event(kind, msgspec.json.encode(partial_metadata(entry.object)))
