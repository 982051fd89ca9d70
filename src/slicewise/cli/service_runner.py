"""Running a service as the command itself, until a signal."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import click

from slicewise.model import SlicewiseError


def run_service(
    serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]],
    *,
    run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run,
    impatient: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM; an `impatient` service leaves at once on the second one."""

    async def live() -> None:
        stop = asyncio.Event()

        def ask_to_stop() -> None:
            if impatient and stop.is_set():
                os._exit(1)
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ask_to_stop)
        await serve(stop)

    try:
        run(live())
    except (SlicewiseError, OSError) as error:
        raise click.ClickException(str(error)) from error
