"""Objects as clients ask to see them: whole, as metadata alone, or as Events of the newer group.

Encoded bytes are reused wherever the view is the stored object.
"""

from collections.abc import Mapping

import msgspec

from slicewise_playground.objects.resources import ApiResource, Object
from slicewise_playground.objects.store import StoreChange, StoredObject

META = "meta.k8s.io/v1"
_ENCODER = msgspec.json.Encoder()

_RENAMED = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_RESTORED = {new: old for old, new in _RENAMED.items()}


def read_body(resource: ApiResource, item: Object) -> Object:
    """A body as it is stored."""
    return _rename(item, _RESTORED) if resource.group == "events.k8s.io" else item


def show(resource: ApiResource, item: Object) -> Object:
    """A stored object as its resource shows it, without kind and apiVersion."""
    return _rename(item, _RENAMED) if resource.group == "events.k8s.io" else item


def encode_bare(resource: ApiResource, entry: StoredObject) -> bytes:
    """An object without kind and apiVersion, as in a list."""
    if resource.group == "events.k8s.io" or not entry.encoded:
        return _ENCODER.encode(show(resource, entry.object))
    return entry.encoded


def encode_whole(resource: ApiResource, entry: StoredObject) -> bytes:
    """An object with kind and apiVersion."""
    head = f'{{"kind":"{resource.kind}","apiVersion":"{resource.group_version}",'
    return head.encode() + encode_bare(resource, entry)[1:]


def encode_list(
    resource: ApiResource, metadata: Mapping[str, object], entries: list[StoredObject]
) -> bytes:
    """A list of objects."""
    head = (
        f'{{"kind":"{resource.kind}List","apiVersion":"{resource.group_version}","metadata":'
    ).encode()
    items = b",".join([encode_bare(resource, entry) for entry in entries])
    return b"".join((head, _ENCODER.encode(metadata), b',"items":[', items, b"]}\n"))


def partial_metadata(item: Object) -> Object:
    """An object reduced to its metadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": item["metadata"]}


def encode_partial_list(metadata: Mapping[str, object], entries: list[StoredObject]) -> bytes:
    """A list of objects reduced to their metadata."""
    items = [{"metadata": entry.object["metadata"]} for entry in entries]
    return _ENCODER.encode(
        {
            "kind": "PartialObjectMetadataList",
            "apiVersion": META,
            "metadata": metadata,
            "items": items,
        }
    )


def encode_event(kind: str, body: bytes) -> bytes:
    """One line of a watch."""
    return b'{"type":"' + kind.encode() + b'","object":' + body + b"}\n"


def encode_change(resource: ApiResource, kind: str, change: StoreChange) -> bytes:
    """One change as a line of a watch, encoded once for all who watch the resource."""
    key = (resource.qualified, kind)
    frame = change.frames.get(key)
    if frame is None:
        entry = change.removed if kind == "DELETED" else change.new
        assert entry is not None
        frame = change.frames[key] = encode_event(kind, encode_whole(resource, entry))
    return frame


def bookmark(resource: ApiResource, revision: int, *, initial: bool = False) -> bytes:
    """A line of a watch that only says how far it has come."""
    metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    item = {
        "kind": resource.kind,
        "apiVersion": resource.group_version,
        "metadata": metadata,
    }
    return encode_event("BOOKMARK", _ENCODER.encode(item))


def _rename(item: Object, names: Mapping[str, str]) -> Object:
    """The object with its top-level fields renamed."""
    return {names.get(key, key): value for key, value in item.items()}
