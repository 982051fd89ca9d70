"""Pods as whoever moves them must know them: controller, volumes, affinities and start."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from slicewise.kube.client import Client
from slicewise.kube.objects import Metadata, read_time
from slicewise.kube.reads import list_all
from slicewise.kube.sources import LIVE_PODS, by_uid
from slicewise.kube.watch import WatchSource

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class OwnerBody(msgspec.Struct, gc=False):
    kind: str = ""
    uid: str = ""
    controller: bool = False


class OwnedMetadata(Metadata, rename="camel", gc=False):
    owner_references: list[OwnerBody] | None = None


class StartedStatus(msgspec.Struct, rename="camel", gc=False):
    phase: str = ""
    start_time: str | None = None


class PodFactsBody(msgspec.Struct, gc=False):
    metadata: OwnedMetadata
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: StartedStatus = msgspec.field(default_factory=StartedStatus)
    kind: str = ""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod with everything of its spec."""

    uid: str
    namespace: str
    name: str
    spec: Mapping[str, Any]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owner_kind: str = ""
    owner: str = ""
    """The UID of its controller; empty without one."""
    started: int = 0
    """Seconds since 1970 when a kubelet took it; 0 where none has."""
    created: int = 0
    """Seconds since 1970 by the API server's clock."""
    running: bool = False
    deleting: bool = False

    @property
    def node(self) -> str | None:
        return self.spec.get("nodeName") or None

    @property
    def bound_elsewhere(self) -> str | None:
        """What of its spec decides where it can go beside its node's own facts, if anything."""
        for volume in self.spec.get("volumes") or ():
            if volume.get("persistentVolumeClaim") or volume.get("ephemeral"):
                return "has a persistent volume"
        if self.spec.get("resourceClaims"):
            return "has resource claims"
        affinity = self.spec.get("affinity") or {}
        if any((affinity.get(each) or {}).get(_REQUIRED) for each in _POD_AFFINITIES):
            return "requires affinity to other pods"
        spread = self.spec.get("topologySpreadConstraints") or ()
        if any(each.get("whenUnsatisfiable") != "ScheduleAnyway" for each in spread):
            return "requires a topology spread"
        return None


_POD_AFFINITIES: Final = ("podAffinity", "podAntiAffinity")


async def list_pod_facts(client: Client, namespace: str | None = None) -> list[PodFacts]:
    """The pods of a namespace, or all, that have not ended."""
    home = "" if namespace is None else f"/namespaces/{namespace}"
    source = WatchSource(
        resource="pods",
        path=f"/api/v1{home}/pods",
        body=PodFactsBody,
        read=read_pod_facts,
        key=by_uid,
        query={"fieldSelector": LIVE_PODS},
    )
    return await list_all(client, source)


def read_pod_facts(body: PodFactsBody) -> PodFacts:
    meta = body.metadata
    owner = next((each for each in meta.owner_references or () if each.controller), OwnerBody())
    return PodFacts(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        spec=body.spec,
        labels=meta.labels or {},
        annotations=meta.annotations or {},
        owner_kind=owner.kind,
        owner=owner.uid,
        started=read_time(body.status.start_time),
        created=read_time(meta.creation_timestamp),
        running=body.status.phase == "Running",
        deleting=meta.deletion_timestamp is not None,
    )
