"""Deleting: grace for pods, finalizers, preconditions, and the end of namespaces."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from slicewise_playground.api.writes import EmbeddedApi, ObjectRef
from slicewise_playground.objects.errors import bad_request, conflict
from slicewise_playground.objects.resources import RESOURCES, Object, find
from slicewise_playground.objects.selectors import Selection
from slicewise_playground.objects.shapes import check_kind
from slicewise_playground.objects.store import StoredObject, key_of

PODS = find("pods")
ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """What a caller asks of a deletion."""

    grace_seconds: int | None = None
    uid: str = ""
    revision: str = ""
    dry_run: bool = False

    @classmethod
    def read(cls, body: Any, query: dict[str, str] | None = None) -> "DeleteOptions":
        """The options in a DeleteOptions body and in the query."""
        query = query or {}
        body = {} if body is None else body
        check_kind("DeleteOptions", "v1", body)
        preconditions = body.get("preconditions") or {}
        grace = body.get("gracePeriodSeconds")
        if grace is None and query.get("gracePeriodSeconds"):
            grace = query["gracePeriodSeconds"]
        try:
            seconds = None if grace is None else int(grace)
        except (TypeError, ValueError) as error:
            raise bad_request(f"gracePeriodSeconds={grace!r}: expected a number") from error
        if seconds is not None and seconds < 0:
            seconds = 1
        return cls(
            grace_seconds=seconds,
            uid=preconditions.get("uid") or "",
            revision=preconditions.get("resourceVersion") or "",
            dry_run=bool(body.get("dryRun") or query.get("dryRun")),
        )


@dataclass(frozen=True, slots=True)
class DeleteOutcome:
    """The last version of a deleted object, and whether it is gone already."""

    entry: StoredObject
    gone: bool


def delete(
    api: EmbeddedApi, target: ObjectRef, options: DeleteOptions | None = None
) -> DeleteOutcome:
    """Remove an object, or mark it when grace or finalizers keep it for now."""
    options = options or DeleteOptions()
    with api.store.lock:
        entry = api.get(target)
        _check_preconditions(target, entry, options)
        if options.dry_run:
            return DeleteOutcome(entry, True)
        if target.resource.kind == "Namespace":
            return _end_namespace(api, target, entry)
        deleted = _delete_one(api, target, entry, options)
        if deleted.gone:
            _finish_namespace(api, target.namespace)
        return deleted


def delete_many(
    api: EmbeddedApi, target: ObjectRef, selection: Selection, options: DeleteOptions | None = None
) -> list[StoredObject]:
    """Delete all selected objects and return their last versions."""
    home = api.store.collections[target.resource.collection]
    with api.store.lock:
        matching = [
            home.entries[key]
            for key in home.ordered()
            if selection.matches(home.entries[key].object)
        ]
        deleted = []
        for entry in matching:
            namespace, name = key_of(entry.object)
            one = ObjectRef(target.resource, namespace, name)
            deleted.append(delete(api, one, options).entry)
        return deleted


def _delete_one(
    api: EmbeddedApi, target: ObjectRef, entry: StoredObject, options: DeleteOptions
) -> DeleteOutcome:
    """Remove or mark one object that is no namespace."""
    metadata = entry.object["metadata"]
    grace = _grace(target, entry.object, options)
    marked = metadata.get("deletionTimestamp") is not None
    current = metadata.get("deletionGracePeriodSeconds")
    if grace == 0 and not metadata.get("finalizers"):
        if target.resource.kind == "Pod" and current != 0:
            api.store.put(target.resource.collection, _mark(api, entry.object, 0))
        return DeleteOutcome(api.store.remove(target.resource.collection, target.key), True)
    if marked and current is not None and grace >= current:
        return DeleteOutcome(entry, False)
    marked_object = _mark(api, entry.object, grace)
    return DeleteOutcome(api.store.put(target.resource.collection, marked_object), False)


def _mark(api: EmbeddedApi, item: Object, grace: int) -> Object:
    """The object with the time of its end."""
    metadata = dict(item["metadata"])
    if metadata.get("deletionTimestamp") is None and metadata.get("generation"):
        metadata["generation"] += 1
    end = api.now() + timedelta(seconds=grace)
    metadata["deletionTimestamp"] = end.strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata["deletionGracePeriodSeconds"] = grace
    return {**item, "metadata": metadata}


def _grace(target: ObjectRef, item: Object, options: DeleteOptions) -> int:
    """How long the object may take to end; only a pod on a node takes any time."""
    if target.resource.kind != "Pod":
        return 0
    if not item["spec"].get("nodeName") or item["status"].get("phase") in ENDED:
        return 0
    if options.grace_seconds is not None:
        return options.grace_seconds
    return int(item["spec"].get("terminationGracePeriodSeconds") or 0)


def _check_preconditions(target: ObjectRef, entry: StoredObject, options: DeleteOptions) -> None:
    """Refuse to delete another object than the caller meant."""
    metadata = entry.object["metadata"]
    if options.uid and options.uid != metadata["uid"]:
        why = (
            f"Precondition failed: UID in precondition: {options.uid}, "
            f"UID in object meta: {metadata['uid']}"
        )
        raise conflict(target.resource, target.name, why)
    if options.revision and options.revision != metadata["resourceVersion"]:
        why = (
            f"Precondition failed: ResourceVersion in precondition: {options.revision}, "
            f"ResourceVersion in object meta: {metadata['resourceVersion']}"
        )
        raise conflict(target.resource, target.name, why)


def _end_namespace(api: EmbeddedApi, target: ObjectRef, entry: StoredObject) -> DeleteOutcome:
    """Mark a namespace, delete what it holds, and remove it once it is empty."""
    if entry.object["metadata"].get("deletionTimestamp") is None:
        item = _mark(api, entry.object, 0)
        item["metadata"].pop("deletionGracePeriodSeconds")
        item["status"] = {**item.get("status", {}), "phase": "Terminating"}
        entry = api.store.put("namespaces", item)
    for resource in RESOURCES:
        if resource.namespaced and "delete" in resource.verbs and not resource.storage:
            delete_many(api, ObjectRef(resource, target.name), Selection(target.name))
    _finish_namespace(api, target.name)
    return DeleteOutcome(entry, False)


def _finish_namespace(api: EmbeddedApi, name: str) -> None:
    """Remove an ending namespace that holds nothing any more."""
    home = api.store.get("namespaces", ("", name))
    if home is None or home.object["metadata"].get("deletionTimestamp") is None:
        return
    for collection in api.store.collections.values():
        if any(namespace == name for namespace, _ in collection.entries):
            return
    api.store.remove("namespaces", ("", name))
