"""The verbs that write: create, update and patch, with what the server checks and fills in.

Each is one atomic step on the store, and refuses with an ApiError.
"""

import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from slicewise_playground.objects.errors import (
    ApiError,
    already_exists,
    bad_request,
    bad_value,
    conflict,
    forbidden,
    invalid,
    not_found,
    stale,
)
from slicewise_playground.objects.metadata_rules import check_metadata
from slicewise_playground.objects.resources import ApiResource, Object, find
from slicewise_playground.objects.rules import rules_for
from slicewise_playground.objects.shapes import check_shape
from slicewise_playground.objects.store import ObjectStore, StoredObject

NAMESPACES = find("namespaces")
PRIORITY_CLASSES = find("priorityclasses")
SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
GENERATED_LENGTH = 63
VERSION = "v1.36.4"
BINDING_LABELS_FROM = 35
"""The minor version from which the labels of a Binding reach its pod."""


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """Which object of which resource a request is about."""

    resource: ApiResource
    namespace: str
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The key in the store."""
        return (self.namespace if self.resource.namespaced else "", self.name)


class EmbeddedApi:
    """The writing verbs over one store."""

    def __init__(
        self,
        store: ObjectStore,
        now: Callable[[], datetime] | None = None,
        version: str = VERSION,
    ) -> None:
        """Write to the store; `now` stamps what is written."""
        self.store = store
        self.now = now or (lambda: datetime.now(UTC))
        self.version = version
        """The Kubernetes version it says it is."""
        self.binding_labels = int(version.split(".")[1]) >= BINDING_LABELS_FROM
        """Whether the labels of a Binding reach its pod, as the feature gate says."""

    def get(self, target: ObjectRef) -> StoredObject:
        """The current version, or 404."""
        entry = self.store.get(target.resource.collection, target.key)
        if entry is None:
            raise not_found(target.resource, target.name)
        return entry

    def create(self, target: ObjectRef, item: Object, *, dry_run: bool = False) -> StoredObject:
        """Store a new object with everything the server fills in."""
        resource = target.resource
        item = _copy(item)
        metadata = self._check_in(target, item)
        if metadata.pop("resourceVersion", ""):
            raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
        check_shape(resource, item)
        _drop_empty(metadata)
        with self.store.lock:
            self._admit(target, item)
            if not metadata.get("name") and metadata.get("generateName"):
                metadata["name"] = _generate(metadata["generateName"])
            self._begin(resource, metadata)
            _refuse_unreadable(resource, rules_for(resource.kind).prepare(item))
            problems = check_metadata(resource, item) + rules_for(resource.kind).check(item)
            if problems:
                raise invalid(resource, metadata.get("name") or "", problems)
            target = ObjectRef(resource, target.namespace, metadata["name"])
            if self.store.get(resource.collection, target.key) is not None:
                raise already_exists(resource, metadata["name"])
            return (
                StoredObject(item, b"", 0) if dry_run else self.store.put(resource.collection, item)
            )

    def replace(self, target: ObjectRef, item: Object, *, dry_run: bool = False) -> StoredObject:
        """Store a new version of an object, or of its status."""
        resource = target.resource
        item = _copy(item)
        metadata = self._check_in(target, item)
        with self.store.lock:
            entry = self.store.get(resource.collection, target.key)
            if entry is None:
                if not resource.create_on_update or target.subresource:
                    raise not_found(resource, target.name)
                metadata.pop("resourceVersion", None)
                return self.create(target, item, dry_run=dry_run)
            if not metadata.get("resourceVersion") and not resource.blind_update:
                field = "metadata.resourceVersion"
                problem = bad_value(field, 0, "must be specified for an update")
                raise invalid(resource, target.name, [problem])
            return self._write(target, entry, item, dry_run=dry_run)

    def patch(
        self, target: ObjectRef, change: Callable[[Object], Any], *, dry_run: bool = False
    ) -> StoredObject:
        """Store the version that a change makes of the current one."""
        with self.store.lock:
            entry = self.get(target)
            before = {
                "kind": target.resource.kind,
                "apiVersion": target.resource.group_version,
                **entry.object,
            }
            after = change(before)
            if not isinstance(after, dict) or not isinstance(after.get("metadata"), dict):
                raise bad_request("the patched object has no metadata")
            self._check_in(target, after)
            uid = after["metadata"].get("uid")
            if uid != entry.object["metadata"]["uid"]:
                problem = bad_value("metadata.uid", uid or "", "field is immutable")
                raise invalid(target.resource, target.name, [problem])
            return self._write(target, entry, _copy(after), dry_run=dry_run)

    def _check_in(self, target: ObjectRef, item: Object) -> Object:
        """The metadata of a body that fits the address it was sent to."""
        resource = target.resource
        kind = item.pop("kind", None) or resource.kind
        version = item.pop("apiVersion", None) or resource.group_version
        if (kind, version) != (resource.kind, resource.group_version):
            raise bad_request(
                f"the object provided is unrecognized (must be of type {resource.kind}): "
                f'no kind "{kind}" is registered for version "{version}" at this path'
            )
        metadata = item.get("metadata")
        if metadata is None:
            metadata = item["metadata"] = {}
        if not isinstance(metadata, dict):
            raise bad_request(f"metadata: expected an object, got {type(metadata).__name__}")
        name = metadata.get("name")
        if target.name and name and name != target.name:
            raise bad_request(
                f"the name of the object ({name}) does not match the name on the URL "
                f"({target.name})"
            )
        if target.name:
            metadata["name"] = target.name
        if resource.namespaced:
            if metadata.get("namespace") not in {None, "", target.namespace}:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on "
                    "the request"
                )
            metadata["namespace"] = target.namespace
        else:
            metadata.pop("namespace", None)
        metadata.pop("managedFields", None)
        return metadata

    def _admit(self, target: ObjectRef, item: Object) -> None:
        """Refuse objects for absent or ending namespaces, and settle a pod's priority."""
        resource = target.resource
        name = item["metadata"].get("name") or ""
        if resource.namespaced:
            home = self.store.get("namespaces", ("", target.namespace))
            if home is None:
                raise not_found(NAMESPACES, target.namespace)
            if home.object["metadata"].get("deletionTimestamp"):
                why = (
                    f"unable to create new content in namespace {target.namespace} because it is "
                    "being terminated"
                )
                raise forbidden(resource, name, why)
        if resource.kind == "Pod":
            self._settle_priority(resource, item)

    def _settle_priority(self, resource: ApiResource, pod: Object) -> None:
        """Copy the priority of the pod's class into the pod."""
        spec = pod.setdefault("spec", {})
        wanted = spec.get("priorityClassName")
        classes = self.store.collections[PRIORITY_CLASSES.collection].entries
        row = classes.get(("", wanted)) if wanted else None
        if wanted and row is None:
            why = f"no PriorityClass with name {wanted} was found"
            raise forbidden(resource, pod["metadata"].get("name") or "", why)
        if row is None:
            row = next(
                (entry for entry in classes.values() if entry.object.get("globalDefault")), None
            )
            if row is not None:
                spec["priorityClassName"] = row.object["metadata"]["name"]
        spec["priority"] = row.object["value"] if row else 0
        policy = row.object.get("preemptionPolicy") if row else None
        spec.setdefault("preemptionPolicy", policy or "PreemptLowerPriority")

    def _begin(self, resource: ApiResource, metadata: Object) -> None:
        """What the server alone writes into new metadata."""
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
            metadata.pop(field, None)
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = self.stamp()
        if resource.generations:
            metadata["generation"] = 1

    def _write(
        self, target: ObjectRef, entry: StoredObject, item: Object, *, dry_run: bool = False
    ) -> StoredObject:
        """Store the item over the entry, if it is allowed and changes anything."""
        resource, old = target.resource, entry.object
        metadata = item["metadata"]
        _check_versions(target, metadata, entry)
        check_shape(resource, item)
        if target.subresource == "status":
            kept = resource.kind in {"Pod", "Node"}
            new = {**old, "metadata": metadata if kept else dict(old["metadata"])}
            if "status" in item:
                new["status"] = item["status"]
        else:
            new = dict(item)
            if "status" in old:
                new["status"] = old["status"]
            else:
                new.pop("status", None)
        _check_end(target, metadata, old["metadata"])
        new["metadata"] = _keep_metadata(new["metadata"], old["metadata"])
        rules = rules_for(resource.kind)
        _refuse_unreadable(resource, rules.settle(new))
        problems = check_metadata(resource, new) + rules.check(new) + rules.check_update(new, old)
        if problems:
            raise invalid(resource, target.name, problems)
        if resource.generations and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if _ends(new):
            return self.store.remove(resource.collection, target.key)
        if new == old:
            return entry
        return StoredObject(new, b"", 0) if dry_run else self.store.put(resource.collection, new)

    def stamp(self) -> str:
        """The present moment as objects spell it."""
        return self.now().strftime("%Y-%m-%dT%H:%M:%SZ")


def _generate(prefix: str) -> str:
    """A name with a random ending."""
    ending = "".join(secrets.choice(SUFFIX_LETTERS) for _ in range(5))
    return prefix[: GENERATED_LENGTH - 5] + ending


def _check_versions(target: ObjectRef, metadata: Mapping[str, Any], entry: StoredObject) -> None:
    """Refuse a write made on another version, or for another object of the same name."""
    old = entry.object["metadata"]
    version = metadata.get("resourceVersion")
    if version and version != old["resourceVersion"]:
        raise stale(target.resource, target.name)
    uid = metadata.get("uid")
    if uid and uid != old["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['uid']}"
        raise conflict(target.resource, target.name, why)


def _check_end(target: ObjectRef, new: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    """Refuse to write the time of an object's end, which only a deletion sets."""
    field = "deletionTimestamp"
    if new.get(field) and new[field] != old.get(field):
        problem = bad_value(f"metadata.{field}", new[field], "field is immutable")
        raise invalid(target.resource, target.name, [problem])


def _keep_metadata(new: Object, old: Object) -> Object:
    """New metadata with the parts that only the server writes."""
    kept = dict(new)
    fixed = (
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
        "generateName",
    )
    for field in fixed:
        if field in old:
            kept[field] = old[field]
        else:
            kept.pop(field, None)
    _drop_empty(kept)
    return kept


def _drop_empty(metadata: Object) -> None:
    """Remove empty members in place, as the real server leaves them out."""
    for key in [key for key, value in metadata.items() if value in (None, "", {}, [])]:
        del metadata[key]


def _copy(item: Any) -> Any:
    """A deep copy without nulls, which mean nothing in a stored object."""
    if isinstance(item, dict):
        return {key: _copy(value) for key, value in item.items() if value is not None}
    return [_copy(value) for value in item] if isinstance(item, list) else item


def _ends(item: Object) -> bool:
    """Whether an object was only waiting for its last finalizer."""
    metadata = item["metadata"]
    return bool(
        metadata.get("deletionTimestamp")
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not (item.get("spec") or {}).get("finalizers")
    )


def _refuse_unreadable(resource: ApiResource, problems: list[Any]) -> None:
    """Raise 400 for amounts and encodings that cannot be read."""
    if problems:
        first = problems[0]
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a '
            f"{resource.kind}: {first.field}: {first.message}"
        )
