"""The take-over of pods that ran before records were signed: each is signed once, if it may be.

What a node's agent says its containers were given decides; marks that say otherwise are reported
and left as they are. One patch for each pod, with optimistic locking on its version.
"""

import asyncio
from typing import Final

import structlog

from slicewise.cluster import PodSeen, Problem, ProblemKind
from slicewise.extender.binder import Binder
from slicewise.kube.outcomes import PodEvent
from slicewise.model import Allocation, Node, Pod, PodRecord
from slicewise.state.take_over import FindNotice, TakeOverExaminer
from slicewise.trust import TrustError, TrustStore

# The loop turns between two groups, so that schedulers do not wait for a whole cluster.
_GROUP: Final = 64
_TOGETHER: Final = 16
_log = structlog.get_logger(__name__)


class TakeOver:
    """Signs the records of running pods while a take-over is under way."""

    def __init__(
        self,
        binder: Binder,
        trust: TrustStore,
        find_notice: FindNotice,
        *,
        pause_seconds: float = 5.0,
    ) -> None:
        self.problems: tuple[Problem, ...] = ()
        """Why pods are not signed, as of the last look."""
        self._binder = binder
        self._trust = trust
        self._examiner = TakeOverExaminer(trust, find_notice, binder.queries.dialects)
        self._pause = pause_seconds
        self._told: set[str] = set()

    async def run(self) -> None:
        """Sign what can be signed, again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._pause)

    async def look(self) -> None:
        """Look at every pod once."""
        state = self._binder.queries.state
        if not self._trust.policy.taking_over or not state.ready:
            self.problems = ()
            return
        problems: set[Problem] = set()
        agreed: list[tuple[Pod, Node, Allocation]] = []
        for at, pod in enumerate(list(state.ledger.gpu_pods())):
            if at % _GROUP == 0:
                await asyncio.sleep(0)
            held = None if pod.node is None else state.snapshot().get(pod.node)
            found = None if held is None else self._examiner.examine(pod, held.node)
            if isinstance(found, Problem):
                problems.add(found)
                self._tell(pod, found)
            elif found is not None and held is not None:
                agreed.append((pod, held.node, found))
        for at in range(0, len(agreed), _TOGETHER):
            outcomes = await asyncio.gather(
                *(self._sign(*each) for each in agreed[at : at + _TOGETHER])
            )
            if not any(outcomes) or not state.ready:
                # The API server refuses, or we lead no more: the next look tries again.
                break
        self.problems = tuple(sorted(problems))

    async def _sign(self, pod: Pod, node: Node, allocation: Allocation) -> bool:
        """Write the signed record; true when it is on the pod."""
        binder = self._binder
        async with binder.locks.hold(pod.uid):
            try:
                record = PodRecord(binder.sign(pod, allocation, node))
            except TrustError as error:
                # The key was taken back since the look began.
                _log.warning(
                    "pod not taken over", pod=f"{pod.namespace}/{pod.name}", error=str(error)
                )
                return False
            outcome = await binder.write_record(pod, record, version=pod.version)
        if outcome.pod is not None and outcome.pod.uid == pod.uid:
            binder.queries.state.ledger.apply(PodSeen(outcome.pod))
        _log.info(
            "pod taken over" if outcome.stands else "pod not taken over",
            pod=f"{pod.namespace}/{pod.name}",
            node=node.name,
            gpus=",".join(map(str, allocation.gpus)),
            outcome=outcome.status.value,
            error=outcome.detail,
        )
        return outcome.stands

    def _tell(self, pod: Pod, problem: Problem) -> None:
        """Post one event about a pod whose marks say otherwise than its node."""
        mismatch = problem.trouble == ProblemKind.TAKE_OVER_MISMATCH.value
        if not mismatch or pod.uid in self._told:
            return
        self._told.add(pod.uid)
        note = f"{problem.detail}; its containers do not start again after the take-over has ended"
        event = PodEvent(reason=problem.trouble, note=note[:1024], action="TakeOver", warning=True)
        self._binder.writer.post_event(pod, event)
        _log.warning("pod not taken over", pod=problem.subject, node=pod.node, error=problem.detail)
