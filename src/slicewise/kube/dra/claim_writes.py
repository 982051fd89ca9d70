"""Writes to claims, each to the very version that was decided on, so that of two writers one wins.

Where the client has a fence, a write has ended before another can lead.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from slicewise.kube.client import Call, Client
from slicewise.kube.dra.claims import RESOURCE, ResourceClaimBody, find_claim, read_claim
from slicewise.kube.errors import KubeError, LostError, RefusedError, UnreachedError
from slicewise.kube.leading.fence import Fence
from slicewise.kube.outcomes import WriteStatus
from slicewise.kube.reads import decode_answer
from slicewise.model.claim import Claim

APPLY: Final = "application/apply-patch+yaml"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
_MANAGER: Final = "slicewise-extender"
_CLAIM: Final = msgspec.json.Decoder(ResourceClaimBody)
_NO_FENCE: Final = Fence()
# The server enforces its timeout a little late, and by another clock.
_MARGIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class ClaimWriteOutcome:
    """How a write to a claim ended, and the claim as it is now where that is known."""

    status: WriteStatus
    detail: str = ""
    claim: Claim | None = None


class ClaimWrites:
    """Patches claims; every failure is an outcome."""

    def __init__(
        self,
        client: Client,
        *,
        seconds: float = 5.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._client = client
        self._seconds = seconds
        self._clock = clock or asyncio.get_running_loop().time
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

    async def patch(
        self, claim: Claim, body: dict[str, Any], content_type: str, *, part: str = ""
    ) -> ClaimWriteOutcome:
        """Write this to the claim or to a part of it; the body names the version it is for."""
        self._under_way += 1
        try:
            return await self._send(claim, body, content_type, part)
        except RefusedError as error:
            return await self._understand(claim, error)
        except UnreachedError as error:
            return ClaimWriteOutcome(WriteStatus.REFUSED, str(error))
        except LostError as error:
            self._unsettled_until = self._clock() + self._seconds + _MARGIN_SECONDS
            return ClaimWriteOutcome(WriteStatus.UNKNOWN, str(error))
        finally:
            self._under_way -= 1

    async def find(self, claim: Claim) -> ClaimWriteOutcome:
        """The claim as it is now; every failure is an outcome."""
        try:
            found = await find_claim(self._client, claim.namespace, claim.name)
        except KubeError as error:
            return ClaimWriteOutcome(WriteStatus.UNKNOWN, str(error))
        if found is None or found.uid != claim.uid:
            return ClaimWriteOutcome(WriteStatus.GONE)
        return ClaimWriteOutcome(WriteStatus.DONE, claim=found)

    async def _send(
        self, claim: Claim, body: dict[str, Any], content_type: str, part: str
    ) -> ClaimWriteOutcome:
        limits = (self._client.fence or _NO_FENCE).limit(self._seconds)
        query = {
            "fieldManager": _MANAGER,
            "timeout": f"{max(1, int(limits.server_seconds * 1000))}ms",
        }
        if content_type == APPLY:
            query["force"] = "true"
        below = f"/{part}" if part else ""
        path = (
            f"/apis/resource.k8s.io/v1/namespaces/{quote(claim.namespace, safe='')}"
            f"/{RESOURCE}/{quote(claim.name, safe='')}{below}"
        )
        call = Call("patch", f"{RESOURCE}{below}", path, query)
        content = await self._client.send(
            call, body, content_type=content_type, seconds=limits.send_seconds
        )
        return ClaimWriteOutcome(
            WriteStatus.DONE, claim=read_claim(decode_answer(_CLAIM, call, content))
        )

    async def _understand(self, claim: Claim, error: RefusedError) -> ClaimWriteOutcome:
        """What a refused write means; a claim that has changed is decided on again."""
        if error.retryable and error.code != 429:
            self._unsettled_until = self._clock() + self._seconds + _MARGIN_SECONDS
            return ClaimWriteOutcome(WriteStatus.UNKNOWN, str(error))
        found: Claim | None = None
        if not error.missing and error.code in (409, 422):
            try:
                found = await find_claim(self._client, claim.namespace, claim.name)
            except KubeError:
                return ClaimWriteOutcome(WriteStatus.REFUSED, str(error))
        elif not error.missing:
            return ClaimWriteOutcome(WriteStatus.REFUSED, str(error))
        if found is None or found.uid != claim.uid:
            return ClaimWriteOutcome(WriteStatus.GONE, error.message)
        if found.version == claim.version:
            # It has not changed: what was written is not valid.
            return ClaimWriteOutcome(WriteStatus.REFUSED, error.message)
        return ClaimWriteOutcome(WriteStatus.CONFLICT, error.message, found)


def write_time(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
