"""Running a service: as the command itself until a signal, or beside a command on a thread."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

import click

from slicewise.model import SlicewiseError

Started = Callable[[str], None]
Serve = Callable[[asyncio.Event, Started], Coroutine[Any, Any, None]]
"""Serves until the event is set, and says its address once it listens."""
_SECONDS: Final = 30.0


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


@contextlib.contextmanager
def serving(name: str, serve: Serve) -> Iterator[str]:
    """The service's address for as long as it is needed; what keeps it from starting is raised."""
    address: Future[str] = Future()
    stop: Future[Callable[[], object]] = Future()

    async def live() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        stop.set_result(partial(loop.call_soon_threadsafe, ended.set))
        await serve(ended, address.set_result)

    def run() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:
            # Whoever waits for the address hears of it, and after that only the log does.
            if address.done():
                raise
            address.set_exception(error)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    try:
        yield address.result(timeout=_SECONDS)
    finally:
        with contextlib.suppress(RuntimeError):
            stop.result(timeout=_SECONDS)()
        thread.join()
