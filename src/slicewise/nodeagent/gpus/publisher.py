"""What stands on the Node of the agent: written once, and again only when something changed.

The Node itself remembers which keys the agent wrote, so that those which no longer hold are
taken away, even after a restart, and nobody else's are touched.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

import structlog

from slicewise.dialects import DEFAULT, Dialects
from slicewise.dialects.shared.publication import NodeFacts, Publication
from slicewise.dialects.shared.texts import write_json
from slicewise.kube.errors import KubeError
from slicewise.kube.node_patch import NodePatch, NodePatcher
from slicewise.model import NodeNotice, find_count
from slicewise.nodeagent.agent import Agent
from slicewise.nodeagent.gpus.gpu_watch import GpuWatch

T = TypeVar("T")
PUBLISHED: Final = "slicewise.io/published"
_KINDS: Final = ("labels", "annotations", "amounts")
_log = structlog.get_logger(__name__)


def plan_patch(
    notice: NodeNotice, publication: Publication, amounts: Mapping[str, int]
) -> NodePatch:
    """What to change so that the Node says this, and no longer what was said before."""
    ours = read_published(notice)
    offers = {
        key: value
        for key, value in publication.fallback_labels.items()
        if key in ours["labels"] or key not in notice.labels
    }
    labels = {**publication.labels, **offers}
    annotations = dict(publication.annotations)
    written = {"labels": labels, "annotations": annotations, "amounts": amounts}
    annotations[PUBLISHED] = write_json({kind: sorted(keys) for kind, keys in written.items()})
    capacity = {key: find_count(amount) for key, amount in notice.capacity.items()}
    return NodePatch(
        _differences(notice.labels, labels, ours["labels"]),
        _differences(notice.annotations, annotations, ours["annotations"]),
        _differences(capacity, amounts, ours["amounts"]),
    )


def read_published(notice: NodeNotice) -> Mapping[str, frozenset[str]]:
    """The keys that the agent wrote, by kind; none where the record cannot be read."""
    try:
        record = json.loads(notice.annotations.get(PUBLISHED, "{}"))
    except ValueError:
        record = {}
    kinds = record if isinstance(record, dict) else {}
    return {
        kind: frozenset(key for key in _listed(kinds.get(kind)) if isinstance(key, str))
        for kind in _KINDS
    }


class NodePublisher:
    """Keeps the Node saying what is true; a write that failed is made up for at the next call."""

    def __init__(
        self,
        api: NodePatcher,
        editions: Iterable[str],
        *,
        dialects: Dialects = DEFAULT,
        heartbeat_seconds: float | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._api = api
        self._editions = tuple(editions)
        self._dialects = dialects
        self.heartbeat_seconds = heartbeat_seconds
        self._clock_ns = clock_ns
        self._beat_ns = 0
        self._notice: NodeNotice | None = None
        self._problem: str | None = None

    async def publish(
        self,
        facts: NodeFacts,
        amounts: Mapping[str, int] | None = None,
        notice: NodeNotice | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> bool:
        """Whether the Node says all this now, and these annotations beside it.

        `notice` is the Node where the caller follows it.
        """
        try:
            now = self._newest(notice) or await self._api.read()
            if now is None:
                return self._fail("the node is not registered")
            patch = plan_patch(now, self._compose(facts, annotations or {}), amounts or {})
            if not patch.empty:
                now = await self._api.patch(patch)
                _log.info(
                    "node published",
                    labels=len(patch.labels),
                    annotations=len(patch.annotations),
                    amounts=len(patch.amounts),
                )
        except KubeError as error:
            # The write may have been carried out, so the Node is read before the next.
            self._notice = None
            return self._fail(str(error))
        self._notice, self._problem = now, None
        return True

    def _newest(self, notice: NodeNotice | None) -> NodeNotice | None:
        # A watch lags behind our own writes, which must not be written again for that.
        known = [each for each in (notice, self._notice) if each is not None]
        return max(known, key=lambda each: each.version, default=None)

    def _compose(self, facts: NodeFacts, annotations: Mapping[str, str]) -> Publication:
        publication = self._dialects.publish(facts, self._editions)
        beats: dict[str, str] = {}
        if self.heartbeat_seconds is not None:
            now = self._clock_ns()
            if now - self._beat_ns >= self.heartbeat_seconds * 1e9:
                self._beat_ns = now
            beats = dict.fromkeys(self._dialects.heartbeats, str(self._beat_ns))
        return replace(publication, annotations={**publication.annotations, **annotations, **beats})

    def _fail(self, problem: str) -> bool:
        if problem != self._problem:
            self._problem = problem
            _log.warning("node not published", error=problem)
        return False


async def keep_published(publisher: NodePublisher, watch: GpuWatch, agent: Agent) -> None:
    """Follow the GPUs, hand them to the rest of the agent, and keep the Node up to date."""
    due = agent.publish_due

    async def hand_on(_: NodeFacts) -> None:
        if watch.hardware is not None:
            agent.inventory.take(watch.hardware)
        due.set()

    async def write() -> None:
        # Apart from the watch, so that a slow API server never delays what the kubelet hears.
        while True:
            await due.wait()
            due.clear()
            notice = agent.notice
            if notice is not None:
                watch.follow(notice)
            if agent.claims is not None:
                agent.claims.wake()
            if watch.facts is not None:
                await publisher.publish(watch.facts, agent.amounts, notice, agent.annotations)

    await asyncio.gather(watch.run(hand_on), write())


def _differences(
    there: Mapping[str, T | None], wanted: Mapping[str, T], ours: frozenset[str]
) -> dict[str, T | None]:
    changed: dict[str, T | None] = {
        key: value for key, value in wanted.items() if there.get(key) != value
    }
    return changed | {key: None for key in ours if key in there and key not in wanted}


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []
