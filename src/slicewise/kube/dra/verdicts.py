"""Our word on what was allocated to a claim: conditions that schedulers wait for before they bind.

It is applied to the very version of the claim that was judged, so that of two writers one wins,
and no other driver's part of the status is touched. Where the client has a fence, the write has
ended before another can lead.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from slicewise.kube.client import Call, Client
from slicewise.kube.dra.claims import RESOURCE, ResourceClaimBody, find_claim, read_claim
from slicewise.kube.errors import KubeError, LostError, RefusedError, UnreachedError
from slicewise.kube.leading.fence import Fence
from slicewise.kube.outcomes import WriteStatus
from slicewise.kube.reads import decode_answer
from slicewise.model.claim import DRIVER, GRANTED, REFUSED, Claim, ClaimedDevice

_APPLY: Final = "application/apply-patch+yaml"
_MANAGER: Final = "slicewise-extender"
_CLAIM: Final = msgspec.json.Decoder(ResourceClaimBody)
_NO_FENCE: Final = Fence()
# The server enforces its timeout a little late, and by another clock.
_MARGIN_SECONDS: Final = 1.0
_LONGEST_MESSAGE: Final = 1024


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """Whether pods may be bound to what was allocated, with a reason in one word."""

    granted: bool
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class VerdictOutcome:
    """How writing a verdict ended, and the claim as it is now where that is known."""

    status: WriteStatus
    detail: str = ""
    claim: Claim | None = None


class VerdictWriter:
    """Writes verdicts; every failure is an outcome."""

    def __init__(
        self,
        client: Client,
        *,
        seconds: float = 5.0,
        clock: Callable[[], float] | None = None,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._seconds = seconds
        self._clock = clock or asyncio.get_running_loop().time
        self._wall = wall
        self._under_way = 0
        self._unsettled_until = 0.0

    @property
    def unsettled(self) -> bool:
        """Whether a write whose answer was lost may still be carried out."""
        return self._clock() < self._unsettled_until

    @property
    def idle(self) -> bool:
        """Whether no write is under way, and none may still be carried out."""
        return self._under_way == 0 and not self.unsettled

    async def write(self, claim: Claim, verdict: ClaimVerdict) -> VerdictOutcome:
        """Say it of every device of the claim, if the claim is still as it was judged."""
        self._under_way += 1
        try:
            return await self._write(claim, verdict)
        except RefusedError as error:
            return await self._understand(claim, error)
        except UnreachedError as error:
            return VerdictOutcome(WriteStatus.REFUSED, str(error))
        except LostError as error:
            self._unsettled_until = self._clock() + self._seconds + _MARGIN_SECONDS
            return VerdictOutcome(WriteStatus.UNKNOWN, str(error))
        finally:
            self._under_way -= 1

    async def _write(self, claim: Claim, verdict: ClaimVerdict) -> VerdictOutcome:
        limits = (self._client.fence or _NO_FENCE).limit(self._seconds)
        query = {
            "fieldManager": _MANAGER,
            "force": "true",
            "timeout": f"{max(1, int(limits.server_seconds * 1000))}ms",
        }
        path = (
            f"/apis/resource.k8s.io/v1/namespaces/{quote(claim.namespace, safe='')}"
            f"/{RESOURCE}/{quote(claim.name, safe='')}/status"
        )
        call = Call("patch", f"{RESOURCE}/status", path, query)
        body = write_verdict(claim, verdict, self._wall())
        content = await self._client.send(
            call, body, content_type=_APPLY, seconds=limits.send_seconds
        )
        return VerdictOutcome(
            WriteStatus.DONE, claim=read_claim(decode_answer(_CLAIM, call, content))
        )

    async def _understand(self, claim: Claim, error: RefusedError) -> VerdictOutcome:
        """What a refused write means; a claim that has changed is judged anew."""
        if error.retryable and error.code != 429:
            self._unsettled_until = self._clock() + self._seconds + _MARGIN_SECONDS
            return VerdictOutcome(WriteStatus.UNKNOWN, str(error))
        found: Claim | None = None
        if not error.missing and error.code in (409, 422):
            try:
                found = await find_claim(self._client, claim.namespace, claim.name)
            except KubeError:
                return VerdictOutcome(WriteStatus.REFUSED, str(error))
        elif not error.missing:
            return VerdictOutcome(WriteStatus.REFUSED, str(error))
        if found is None or found.uid != claim.uid:
            return VerdictOutcome(WriteStatus.GONE, error.message)
        return VerdictOutcome(WriteStatus.CONFLICT, error.message, found)


def write_verdict(claim: Claim, verdict: ClaimVerdict, now: datetime) -> dict[str, Any]:
    """What is applied to the status: the same of all devices, for schedulers do not tell them."""
    condition = {
        "type": GRANTED if verdict.granted else REFUSED,
        "status": "True",
        "reason": verdict.reason,
        "message": verdict.message[:_LONGEST_MESSAGE],
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid,
            "resourceVersion": str(claim.version),
        },
        "status": {"devices": [_describe(each, condition) for each in claim.devices]},
    }


def _describe(device: ClaimedDevice, condition: dict[str, str]) -> dict[str, Any]:
    share = {"shareID": device.share} if device.share else {}
    return {
        "driver": DRIVER,
        "pool": device.pool,
        "device": device.device,
        **share,
        "conditions": [condition],
    }
