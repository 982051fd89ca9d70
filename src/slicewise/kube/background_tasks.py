"""Tasks that run beside a service and must never end by themselves.

A task that ends all the same is logged and remembered: liveness probes fail from then on, so that
the kubelet starts the process again instead of leaving it half alive.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

_log = structlog.get_logger(__name__)


class BackgroundTasks:
    def __init__(self) -> None:
        self.failure: str | None = None
        """Which task ended by itself and why; None while all of them run."""
        self._tasks: list[asyncio.Task[None]] = []

    def run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._notice_end)
        self._tasks.append(task)

    def run_once(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Work that may end, but must not fail; whoever starts it stops it."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._notice_error)
        return task

    async def stop(self) -> None:
        """Cancel every task and wait for its end."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _notice_error(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._notice_end(task)

    def _notice_end(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        why = "it returned" if error is None else f"{type(error).__name__}: {error}"
        self.failure = self.failure or f"task {task.get_name()} has ended: {why}"
        _log.critical("background task ended", task=task.get_name(), exc_info=error)
