"""Has a ledger believe records as the trust ConfigMap says, and read pods again when it changes.

Verifying by public keys takes a sixth of a millisecond a pod. Whoever holds no private keys loads
the cluster first, and verifies it in steps between which everybody else is served.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from slicewise.cluster import Ledger, TrustChanged
from slicewise.state.trust import TrustWatch, find_affected
from slicewise.trust import TrustDocument

_STEP_SECONDS: Final = 0.005
_PODS: Final = 8


class LedgerTrust:
    """One ledger and the watch that it believes."""

    def __init__(
        self,
        ledger: Ledger,
        watch: TrustWatch,
        dirty: asyncio.Event,
        run: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        """Set `dirty` after each step, and have `run` carry the reading out."""
        self._ledger = ledger
        self._watch = watch
        self._dirty = dirty
        self._run = run
        self._begun = False
        self._reading: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Believe the watch from now on; until then nothing is checked."""
        self._begun = True
        if self._watch.readable:
            self.take(None)

    def take(self, before: TrustDocument | None) -> None:
        """The ConfigMap has changed from this document; from None when it was read first."""
        if not self._begun:
            return
        store = self._watch.store
        self._ledger.apply(TrustChanged(store))
        uids = find_affected(self._ledger.known_pods(), store, before)
        if uids:
            self._reading = self._run(self._reread(uids, self._reading))

    async def wait(self, seconds: float) -> None:
        """Wait until every pod was read again, or so long."""
        if self._reading is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._reading), seconds)

    def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def _reread(self, uids: Sequence[str], earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await earlier
        until = monotonic() + _STEP_SECONDS
        for at in range(0, len(uids), _PODS):
            self._ledger.apply(TrustChanged(self._watch.store, tuple(uids[at : at + _PODS])))
            if monotonic() > until:
                self._dirty.set()
                await asyncio.sleep(0)
                until = monotonic() + _STEP_SECONDS
        self._dirty.set()
