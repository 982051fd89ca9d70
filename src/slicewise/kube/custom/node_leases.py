"""nvidia-gpu-scheduler v0.2.0's Leases: one for each node, renewed by its agent."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

import msgspec

from slicewise.kube.client import Call, Client
from slicewise.kube.custom.objects import OwnerReference, apply, apply_query
from slicewise.kube.errors import RefusedError
from slicewise.kube.objects import Metadata
from slicewise.kube.sources import by_name
from slicewise.kube.watch import WatchSource

LEASE_NAMESPACE: Final = "nvidia-gpu-scheduler-node-lease"
LEASE_SECONDS: Final = 8
_LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"
_TAKEN: Final = 409


class _LeaseTimes(msgspec.Struct, rename="camel", gc=False):
    renew_time: str | None = None


class _NodeLeaseBody(msgspec.Struct, gc=False):
    metadata: Metadata
    spec: _LeaseTimes = msgspec.field(default_factory=_LeaseTimes)
    kind: str = ""


@dataclass(frozen=True, slots=True)
class SeenLease:
    """The lease of a node, and when its holder says to have renewed it."""

    node: str
    renewed: str


def node_leases() -> WatchSource[_NodeLeaseBody, SeenLease]:
    """The leases of all nodes."""
    return WatchSource(
        resource="leases",
        kind="Lease",
        path=_LEASES,
        body=_NodeLeaseBody,
        read=lambda body: SeenLease(body.metadata.name, body.spec.renew_time or ""),
        key=by_name,
    )


async def renew_node_lease(
    client: Client, owner: OwnerReference, now: datetime, *, manager: str, seconds: float
) -> None:
    """Say that the node lives; its lease and the namespace of all leases are made if missing."""
    moment = now.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": owner.name,
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [owner],
        },
        "spec": {
            "holderIdentity": owner.name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": moment,
        },
    }
    call = Call("patch", "leases", f"{_LEASES}/{quote(owner.name)}", apply_query(manager))
    try:
        await apply(client, call, body, seconds)
    except RefusedError as error:
        if not error.missing:
            raise
        await _make_namespace(client)
        await apply(client, call, body, seconds)


async def _make_namespace(client: Client) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}
    try:
        await client.send(Call("create", "namespaces", "/api/v1/namespaces"), body)
    except RefusedError as error:
        if error.code != _TAKEN:
            raise
