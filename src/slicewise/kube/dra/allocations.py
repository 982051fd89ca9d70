"""Allocations of ours, written to claims in the stead of a scheduler, and granted at once.

The finalizer comes first, so that no claim disappears while something is allocated to it. For whom
a claim is reserved is left to the scheduler, which binds without a pause: it finds the binding
condition true when it first looks.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from slicewise.kube.client import MERGE_PATCH
from slicewise.kube.dra.claim_writes import (
    STRATEGIC_PATCH,
    ClaimWriteOutcome,
    ClaimWrites,
    write_time,
)
from slicewise.kube.dra.claims import CORES, MEMORY, PROTECTION
from slicewise.kube.dra.verdicts import ClaimVerdict, describe_device, write_condition
from slicewise.kube.outcomes import WriteStatus
from slicewise.model.claim import (
    DRIVER,
    GRANTED,
    REFUSED,
    Claim,
    ClaimedDevice,
    ClaimSpec,
    DeviceToleration,
)


class AllocationWriter:
    """Writes allocations; every failure is an outcome."""

    def __init__(
        self, writes: ClaimWrites, wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._writes = writes
        self._wall = wall

    @property
    def unsettled(self) -> bool:
        """Whether a write whose answer was lost may still be carried out."""
        return self._writes.unsettled

    async def find(self, claim: Claim) -> ClaimWriteOutcome:
        """The claim as it is now; every failure is an outcome."""
        return await self._writes.find(claim)

    async def write(self, claim: Claim) -> ClaimWriteOutcome:
        """Write the devices of the claim, if nothing has changed of it."""
        if not claim.protected:
            version = {"uid": claim.uid, "resourceVersion": str(claim.version)}
            body = {"metadata": {"finalizers": [PROTECTION], **version}}
            outcome = await self._writes.patch(claim, body, STRATEGIC_PATCH)
            if outcome.status is not WriteStatus.DONE or outcome.claim is None:
                return outcome
            claim = replace(claim, version=outcome.claim.version, protected=True)
        body = write_allocation(claim, self._wall())
        return await self._writes.patch(claim, body, MERGE_PATCH, part="status")


def write_allocation(claim: Claim, now: datetime) -> dict[str, Any]:
    """The status of a claim with its devices, which all are of one node."""
    (node,) = claim.nodes
    condition = write_condition(ClaimVerdict(True, "Counted"), now)
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return {
        "metadata": {"uid": claim.uid, "resourceVersion": str(claim.version)},
        "status": {
            "allocation": {
                # Without it schedulers try to add it, and an allocation does not change.
                "allocationTimestamp": write_time(now),
                "devices": {"results": [_write_result(each, claim.spec) for each in claim.devices]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
            },
            "devices": [describe_device(each, condition) for each in claim.devices],
        },
    }


def _write_result(device: ClaimedDevice, spec: ClaimSpec | None) -> dict[str, Any]:
    asked = () if spec is None else (each for each in spec.requests if each.name == device.request)
    tolerations = [_write_toleration(each) for one in asked for each in one.tolerations]
    return {
        "request": device.request,
        "driver": DRIVER,
        "pool": device.pool,
        "device": device.device,
        "shareID": device.share,
        "consumedCapacity": {CORES: str(device.cores), MEMORY: f"{device.memory}Mi"},
        "bindingConditions": [GRANTED],
        "bindingFailureConditions": [REFUSED],
        **({"tolerations": tolerations} if tolerations else {}),
    }


def _write_toleration(toleration: DeviceToleration) -> dict[str, Any]:
    told = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": toleration.seconds,
    }
    return {key: value for key, value in told.items() if value not in ("", None)}
