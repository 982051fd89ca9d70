"""Running a service beside the demo, on a thread and an event loop of its own."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

Started = Callable[[str], None]
Serve = Callable[[asyncio.Event, Started], Coroutine[Any, Any, None]]
"""Serves until the event is set, and says its address once it listens."""
_SECONDS: Final = 30.0


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
