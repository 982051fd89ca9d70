"""Work that runs side by side for as long as the agent does."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def run_together(*work: Coroutine[Any, Any, None], stop: asyncio.Event | None = None) -> None:
    """Run all of these until one ends, raising its error, or until told to stop."""
    tasks = [asyncio.create_task(each) for each in work]
    stopping = [] if stop is None else [asyncio.create_task(stop.wait())]
    try:
        await asyncio.wait([*tasks, *stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for each in (*tasks, *stopping):
            each.cancel()
        await asyncio.gather(*tasks, *stopping, return_exceptions=True)
