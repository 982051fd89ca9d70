"""Waiting for a driver that does not answer yet: not installed, not loaded, or mounted late."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from slicewise.nvml.driver import Driver, DriverError

_log = structlog.get_logger(__name__)
RETRY_SECONDS: Final = 5.0
# Whoever looks at the end of the log finds the reason there.
_TRIES_PER_LINE: Final = 12


async def await_driver(
    driver: Driver,
    tell: Callable[[str], None],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Return once the driver lists its GPUs; `tell` hears each time why it does not."""
    tries = 0
    while True:
        try:
            await asyncio.to_thread(driver.hardware)
        except DriverError as error:
            tell(str(error))
            if tries % _TRIES_PER_LINE == 0:
                _log.error("waiting for the driver", error=str(error), retry_seconds=RETRY_SECONDS)
            tries += 1
            await sleep(RETRY_SECONDS)
        else:
            if tries:
                _log.info("driver answers", tries=tries)
            return
