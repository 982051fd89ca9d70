"""Our word on what was allocated to a claim: conditions that schedulers wait for before they bind.

It is applied to the very version of the claim that was judged, so that of two writers one wins,
and no other driver's part of the status is touched.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from slicewise.kube.dra.claim_writes import APPLY, ClaimWriteOutcome, ClaimWrites, write_time
from slicewise.model.claim import DRIVER, GRANTED, REFUSED, Claim, ClaimedDevice

_LONGEST_MESSAGE: Final = 1024


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """Whether pods may be bound to what was allocated, with a reason in one word."""

    granted: bool
    reason: str
    message: str = ""


class VerdictWriter:
    """Writes verdicts; every failure is an outcome."""

    def __init__(
        self, writes: ClaimWrites, wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._writes = writes
        self._wall = wall

    async def write(self, claim: Claim, verdict: ClaimVerdict) -> ClaimWriteOutcome:
        """Say it of every device of the claim, if the claim is still as it was judged."""
        body = write_verdict(claim, verdict, self._wall())
        return await self._writes.patch(claim, body, APPLY, part="status")


def write_condition(verdict: ClaimVerdict, now: datetime) -> dict[str, str]:
    """The condition by which schedulers know the verdict."""
    return {
        "type": GRANTED if verdict.granted else REFUSED,
        "status": "True",
        "reason": verdict.reason,
        "message": verdict.message[:_LONGEST_MESSAGE],
        "lastTransitionTime": write_time(now),
    }


def write_verdict(claim: Claim, verdict: ClaimVerdict, now: datetime) -> dict[str, Any]:
    """What is applied to the status: the same of all devices, for schedulers do not tell them."""
    condition = write_condition(verdict, now)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid,
            "resourceVersion": str(claim.version),
        },
        "status": {"devices": [describe_device(each, condition) for each in claim.devices]},
    }


def describe_device(device: ClaimedDevice, condition: dict[str, str]) -> dict[str, Any]:
    """What we say of one device of an allocation."""
    share = {"shareID": device.share} if device.share else {}
    return {
        "driver": DRIVER,
        "pool": device.pool,
        "device": device.device,
        **share,
        "conditions": [condition],
    }
