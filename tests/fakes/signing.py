"""A key that tests publish, and records signed with it as the extender signs them."""

from collections.abc import Mapping

from slicewise.dialects import ALLOCATION
from slicewise.dialects.shared.signed_record import SIGNATURE, write_signed_record
from slicewise.model import Allocation, Node, TrustPolicy
from slicewise.trust import PublicKeys, SigningKey, TrustStore

KEY = SigningKey(bytes(range(32)))


def trust(policy: TrustPolicy | None = None) -> TrustStore:
    """The key of the tests is published, with this policy beside it."""
    return TrustStore(PublicKeys({KEY.id: KEY.public}), policy)


def write_record(allocation: Allocation, node: Node, epoch: int = 1, now_ns: int = 1) -> str:
    return write_signed_record(allocation, node, epoch=epoch, now_ns=now_ns)


def sign(uid: str, text: str) -> Mapping[str, str]:
    """The annotations of a pod with this UID that make its record believed."""
    return {ALLOCATION: text, SIGNATURE: KEY.sign(uid, text)}
