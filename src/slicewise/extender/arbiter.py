"""Judges what schedulers allocate to claims from GPUs that pods by resource name share.

A scheduler allocates by slices and claims alone, and waits for our word before it binds. In one
step without waiting the ledger counts the claim, or it is refused; only then the word is written.
Until a claim shows otherwise, what was counted stays counted, whatever became of the write.
"""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Final, Protocol

import structlog

from slicewise.cluster import ClaimGone, ClaimSeen, GrantClaim
from slicewise.extender.metrics import Metrics
from slicewise.kube.dra.claim_writes import ClaimWriteOutcome
from slicewise.kube.dra.verdicts import ClaimVerdict
from slicewise.kube.outcomes import WriteStatus
from slicewise.model import Reason, Refusal
from slicewise.model.claim import Claim
from slicewise.state.cluster_state import ClusterState

_log = structlog.get_logger(__name__)
_TOGETHER: Final = 16
# Kubelets and controllers write the same claim now and then.
_ATTEMPTS: Final = 5
_COUNTED: Final = ClaimVerdict(True, "Counted")


class ClaimWriter(Protocol):
    """Writes a verdict on a claim."""

    def write(self, claim: Claim, verdict: ClaimVerdict) -> Awaitable[ClaimWriteOutcome]:
        """How the write ended."""


class ClaimArbiter:
    """Grants or refuses every allocation that waits for it, while this process decides."""

    def __init__(
        self,
        state: ClusterState,
        writer: ClaimWriter,
        metrics: Metrics,
        *,
        pause_seconds: float = 1.0,
    ) -> None:
        self._state = state
        self._writer = writer
        self._metrics = metrics
        self._pause = pause_seconds
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(_TOGETHER)

    async def run(self, changed: asyncio.Event) -> None:
        """Judge claims whenever some have changed, and retry failures, until cancelled."""
        try:
            while True:
                changed.clear()
                self.look()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), self._pause)
        finally:
            await self.drain()

    @property
    def writing(self) -> int:
        return len(self._writing)

    def look(self) -> None:
        """Begin to judge every claim that waits, the one that waits longest first."""
        if not self._state.ready:
            return
        waiting = [each.claim for each in self._state.ledger.claims.waiting()]
        for claim in sorted(waiting, key=lambda each: each.version):
            if claim.uid not in self._writing:
                self._writing[claim.uid] = asyncio.create_task(self._settle(claim.uid))

    async def drain(self) -> None:
        while self._writing:
            await asyncio.wait(set(self._writing.values()))

    def judge(self, claim: Claim) -> ClaimVerdict:
        """The verdict by what is free at this moment; what is granted counts from now on."""
        ledger = self._state.ledger
        entry = ledger.claims.find(claim.uid)
        if entry is None or entry.granted != claim.key:
            refusal = ledger.refuse_claim(claim) or self._find_excess(claim)
            if refusal is not None:
                return ClaimVerdict(False, refusal.reason.code, str(refusal))
        counted = ledger.apply(GrantClaim(claim.uid, claim.key))
        assert counted, claim.full_name
        return _COUNTED

    def _find_excess(self, claim: Claim) -> Refusal | None:
        """Why the quota of the claim's namespace does not allow it."""
        snapshot, quota = self._state.snapshot(), self._state.quota
        for name in claim.nodes:
            state = snapshot.get(name)
            if state is None:
                continue
            charges = claim.slices(state.node)
            excess = quota.find_excess(claim.namespace, charges, state.node, snapshot.usage)
            if excess is not None:
                unread = Reason.QUOTA_UNREADABLE if quota.unreadable else Reason.QUOTA
                return Refusal(unread, excess)
        return None

    async def _settle(self, uid: str) -> None:
        try:
            async with self._places:
                for _ in range(_ATTEMPTS):
                    entry = self._state.ledger.claims.find(uid)
                    if entry is None or not entry.claim.pending or not self._state.ready:
                        return
                    if not await self._try(entry.claim):
                        return
        finally:
            del self._writing[uid]

    async def _try(self, claim: Claim) -> bool:
        """Judge and write once; True when the claim had changed, so that a retry makes sense."""
        verdict = self.judge(claim)
        with self._metrics.stage("claim", "write"):
            outcome = await self._writer.write(claim, verdict)
        ledger = self._state.ledger
        if outcome.claim is not None:
            ledger.apply(ClaimSeen(outcome.claim))
        elif outcome.status is WriteStatus.GONE:
            ledger.apply(ClaimGone(claim.uid))
        if outcome.status is WriteStatus.DONE:
            self._metrics.decided("claim", verdict.reason)
            phrase = "claim granted" if verdict.granted else "claim refused"
            where = ",".join(claim.nodes)
            _log.info(phrase, claim=claim.full_name, node=where, reason=verdict.message)
        else:
            self._metrics.decided("claim", outcome.status.value)
            _log.warning(
                "verdict not written",
                claim=claim.full_name,
                status=outcome.status.value,
                error=outcome.detail,
            )
        return outcome.status is WriteStatus.CONFLICT
