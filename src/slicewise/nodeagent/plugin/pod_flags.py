"""Flags that other systems' tools look for on a pod whose containers have their GPUs.

Each pod is written to once at most, beside the start of its containers and never before it.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

import structlog

from slicewise.kube.outcomes import WriteStatus
from slicewise.kube.pod_writer import PodWriter
from slicewise.model import Pod, PodRecord
from slicewise.model.backoff import Backoff
from slicewise.nodeagent.plugin.cdi_handler import StartedContainer

_log = structlog.get_logger(__name__)
_TRIES: Final = 5
_BACKOFF: Final = Backoff(first=1.0, longest=10.0)
_AT_ONCE: Final = 4


class PodFlagWriter:
    """Writes the flags of pods whose containers start with their GPUs."""

    def __init__(self, writer: PodWriter, clock: Callable[[], int] = time.time_ns) -> None:
        self._writer = writer
        self._clock = clock
        self._written: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(_AT_ONCE)

    def hear(self, started: StartedContainer) -> None:
        """Write the flags of a started container's pod in the background, if it needs any."""
        pod = started.pod_allocation.pod
        if pod.uid in self._written:
            return
        agent = started.pod_allocation.dialect.agent
        marks = agent.flag(started.container_gpus, self._clock())
        # A second start would change the time alone, and that is no reason to write.
        if has_flags(pod, marks, agent.flag_times):
            return
        self._written.add(pod.uid)
        task = asyncio.create_task(self._write(pod, marks))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget(self, living: Callable[[str], bool]) -> None:
        """Drop what is known of pods that are gone."""
        self._written = {uid for uid in self._written if living(uid)}

    async def drain(self, seconds: float = 2.0) -> None:
        """Wait a moment for what is being written."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()

    async def _write(self, pod: Pod, marks: PodRecord) -> None:
        for attempt in range(1, _TRIES + 1):
            async with self._turn:
                outcome = await self._writer.annotate_pod(pod, marks)
            if outcome.stands or outcome.status is WriteStatus.GONE:
                return
            _log.warning(
                "flag not written",
                pod=f"{pod.namespace}/{pod.name}",
                attempt=attempt,
                reason=outcome.detail,
            )
            await asyncio.sleep(_BACKOFF.delay(attempt, random.random()))
        # The next start of one of its containers tries again.
        self._written.discard(pod.uid)


def has_flags(pod: Pod, marks: PodRecord, times: frozenset[str]) -> bool:
    """Whether the pod has these flags already, whatever their times."""
    return all(
        pod.annotations.get(key) == value
        for key, value in marks.annotations.items()
        if key not in times
    ) and all(pod.labels.get(key) == value for key, value in marks.labels.items())
