"""Tells of signed records that lost: a bind that arrived late, after another leader decided.

The ledger counts both pods and the agent starts the newer; the one that loses shows an event.
"""

import asyncio
from typing import Final

import structlog

from slicewise.kube.outcomes import ClusterWriter, PodEvent
from slicewise.state.cluster_state import ClusterState

_log = structlog.get_logger(__name__)
_PAUSE_SECONDS: Final = 5.0


class SupersededReporter:
    def __init__(self, state: ClusterState, writer: ClusterWriter) -> None:
        self._state = state
        self._writer = writer
        self._told: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_PAUSE_SECONDS)

    def look(self) -> None:
        """Post one event for each record that lost."""
        if not self._state.ready:
            return
        lost = {each.subject: each.detail for each in self._state.ledger.superseded()}
        self._told &= set(lost.items())
        new = dict(lost.items() - self._told)
        if not new:
            return
        self._told |= set(new.items())
        for pod in self._state.ledger.known_pods():
            name = f"{pod.namespace}/{pod.name}"
            if name in new:
                note = f"{new[name]}; delete this pod to have it placed again"
                event = PodEvent(reason="GpuTaken", note=note[:1024], warning=True)
                self._writer.post_event(pod, event)
                _log.warning("record superseded", pod=name, reason=new[name])
