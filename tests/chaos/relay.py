"""A line between two programs that can go silent and come back, as networks do."""

import asyncio
import contextlib
import socket


class Relay:
    """Passes bytes to whatever target is chosen when a connection is made."""

    def __init__(self, choose):
        self._choose = choose
        # asyncio turns Nagle's delay off only for sockets that name their protocol.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self._flows = asyncio.Event()
        self._open = set()
        self._tasks = set()
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    async def run(self):
        """Relay until cancelled."""
        self._loop = asyncio.get_running_loop()
        self._flows.set()
        server = await asyncio.start_server(self._relay, sock=self._socket)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            # A connection that was just accepted is known a few turns of the loop later.
            for _ in range(8):
                self._drop()
                for task in tuple(self._tasks):
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await asyncio.sleep(0)

    def silence(self):
        """Let nothing through any more, without telling anybody."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def restore(self):
        """Break the connections that went silent and let new ones through."""
        self._loop.call_soon_threadsafe(self._drop)
        self._loop.call_soon_threadsafe(self._flows.set)

    async def _relay(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        self._open.add(writer)
        try:
            with contextlib.suppress(OSError):
                target = await self._choose()
                far_reader, far_writer = await asyncio.open_connection(*target)
                self._open.add(far_writer)
                try:
                    await asyncio.gather(
                        self._pump(reader, far_writer),
                        self._pump(far_reader, writer),
                        return_exceptions=True,
                    )
                finally:
                    self._close(far_writer)
        finally:
            self._close(writer)
            self._tasks.discard(task)

    async def _pump(self, reader, writer):
        try:
            while chunk := await reader.read(1 << 16):
                await self._flows.wait()
                writer.write(chunk)
                await writer.drain()
        finally:
            writer.close()

    def _close(self, writer):
        self._open.discard(writer)
        writer.transport.abort()

    def _drop(self):
        for writer in tuple(self._open):
            self._close(writer)


def address(url):
    """Host and port of an address."""
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


async def is_ready(url):
    """Whether the extender at an address says it is ready, within half a second."""
    writer = None
    try:
        async with asyncio.timeout(0.5):
            reader, writer = await asyncio.open_connection(*address(url))
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return b" 200 " in await reader.readline()
    except (OSError, TimeoutError):
        return False
    finally:
        if writer is not None:
            writer.transport.abort()
