"""Pods that no node has been found for and that use claims, with what they demand of a node."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from slicewise.kube.affinity import NodeRequirements, read_node_requirements
from slicewise.kube.objects import ObjectReader, PodBody, PodSpec
from slicewise.kube.sources import by_uid
from slicewise.kube.watch import WatchSource
from slicewise.model import Pod

_NULL: Final = msgspec.Raw(b"null")


class PodClaimBody(msgspec.Struct, rename="camel", gc=False):
    """A claim of a pod: one that is there, or one to be made from a template."""

    name: str = ""
    resource_claim_name: str | None = None


class ClaimingSpec(PodSpec, rename="camel", gc=False):
    resource_claims: list[PodClaimBody] | None = None
    scheduling_gates: list[Any] | None = None
    node_selector: dict[str, str] | None = None
    affinity: msgspec.Raw = _NULL
    tolerations: msgspec.Raw = _NULL


class ClaimingBody(PodBody, gc=False):
    spec: ClaimingSpec = msgspec.field(default_factory=ClaimingSpec)


@dataclass(frozen=True, slots=True)
class ClaimingPod:
    """A pod without a node; `claims` has its own name of each claim and the claim's, if known."""

    pod: Pod
    claims: tuple[tuple[str, str], ...] = ()
    requirements: NodeRequirements | None = None
    """What it demands of a node; None where it uses no claims."""
    demands: bytes = b""
    """The same for comparing: pods with equal demands may go to the same nodes."""

    @property
    def waits(self) -> bool:
        """Whether a node is to be found for it, and for its claims with it."""
        return bool(self.claims) and not self.pod.deleting and not self.pod.phase.terminal


def claiming_pods(reader: ObjectReader) -> WatchSource[ClaimingBody, ClaimingPod]:
    """The pods of all namespaces that have no node."""
    return WatchSource(
        resource="pods",
        kind="Pod",
        path="/api/v1/pods",
        body=ClaimingBody,
        read=partial(read_claiming_pod, reader),
        key=by_uid,
        query={"fieldSelector": "spec.nodeName="},
    )


def read_claiming_pod(reader: ObjectReader, body: ClaimingBody) -> ClaimingPod:
    spec, status = body.spec, body.status
    pod = reader.read_pod(body)
    if not spec.resource_claims or spec.scheduling_gates:
        return ClaimingPod(pod)
    made = {each.name: each.resource_claim_name for each in status.resource_claim_statuses or ()}
    claims = []
    for each in spec.resource_claims:
        if each.name in made and made[each.name] is None:
            # The pod needs none there.
            continue
        claims.append((each.name, each.resource_claim_name or made.get(each.name) or ""))
    demands = msgspec.json.encode(
        {
            "nodeSelector": spec.node_selector,
            "affinity": spec.affinity,
            "tolerations": spec.tolerations,
        }
    )
    requirements = read_node_requirements(msgspec.json.decode(demands))
    return ClaimingPod(pod, tuple(claims), requirements, demands)
