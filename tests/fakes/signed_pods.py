"""Pods with records as a leader signs them, and the trust that believes them."""

from dataclasses import replace

from slicewise.dialects import ALLOCATION, DEFAULT, SIGNATURE
from slicewise.dialects.shared.signed_record import write_signed_record
from slicewise.model import (
    Allocation,
    ContainerAllocation,
    Node,
    Pod,
    Slice,
    TrustPolicy,
)
from slicewise.trust import PublicKeys, SigningKey, TrustStore

KEY = SigningKey(bytes(range(32)))


def trusting(policy: TrustPolicy | None = None) -> TrustStore:
    """Believes what `sign` signs, and whatever else the policy says."""
    return TrustStore(PublicKeys({KEY.id: KEY.public}), policy)


def granted(*pieces: Slice, container: str = "c0", node: str = "n0") -> Allocation:
    return Allocation(node, (ContainerAllocation(container, pieces),))


def sign(pod: Pod, allocation: Allocation, node: Node, *, epoch: int = 1, at: int = 1) -> Pod:
    """The pod with the allocation signed, and the marks of its own system beside it."""
    request = DEFAULT.read_request(pod)
    record = DEFAULT.record_allocation(pod, request, allocation, node, now_ns=at)
    text = write_signed_record(allocation, node, epoch=epoch, now_ns=at)
    signed = {ALLOCATION: text, SIGNATURE: KEY.sign(pod.uid, text)}
    return replace(
        pod,
        annotations={**pod.annotations, **record.annotations, **signed},
        labels={**pod.labels, **record.labels},
    )
