"""What controllers make: replica sets of deployments and pods of templates."""

import copy
import hashlib

import msgspec

from slicewise_playground.api.writes import SUFFIX_LETTERS
from slicewise_playground.objects.resources import ApiResource, Object, find

DEPLOYMENTS = find("deployments")
HASH_LABEL = "pod-template-hash"


def template_hash(item: Object) -> str:
    """A short name for a workload's template, the same for the same template."""
    body = msgspec.json.encode(item["spec"]["template"], order="deterministic")
    digest = hashlib.sha256(body).digest()
    return "".join(SUFFIX_LETTERS[byte % len(SUFFIX_LETTERS)] for byte in digest[:10])


def make_replica_set(deployment: Object, name: str) -> Object:
    """The replica set for a deployment's present template."""
    label = {HASH_LABEL: template_hash(deployment)}
    template = copy.deepcopy(deployment["spec"]["template"])
    labels = {**(template["metadata"].get("labels") or {}), **label}
    template["metadata"]["labels"] = labels
    selector = copy.deepcopy(deployment["spec"]["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), **label}
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "ownerReferences": [reference(DEPLOYMENTS, deployment)],
        },
        "spec": {
            "replicas": deployment["spec"].get("replicas", 1),
            "selector": selector,
            "template": template,
        },
    }


def make_pod(row: ApiResource, owner: Object, metadata: Object) -> Object:
    """A pod from an owner's template."""
    template = copy.deepcopy(owner["spec"]["template"])
    given = template.get("metadata") or {}
    labels = {**(given.get("labels") or {}), **(metadata.get("labels") or {})}
    return {
        "metadata": {
            **metadata,
            "labels": labels,
            "annotations": given.get("annotations") or {},
            "ownerReferences": [reference(row, owner)],
        },
        "spec": template["spec"],
    }


def reference(row: ApiResource, owner: Object) -> Object:
    """The reference that makes an object belong to its controller."""
    return {
        "apiVersion": row.group_version,
        "kind": row.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owner_uids(item: Object) -> list[str]:
    """The objects that an object belongs to."""
    return [row["uid"] for row in item["metadata"].get("ownerReferences") or []]


def is_ready(pod: Object) -> bool:
    """Whether a pod says that it is ready."""
    conditions = pod["status"].get("conditions") or []
    return any(row["type"] == "Ready" and row["status"] == "True" for row in conditions)
