"""A network between one extender and the API server that holds writes back and drops renewals.

The extender speaks plain HTTP to it; it speaks to the API server as the extender's user. While it
is told to be bad, leases are neither read nor renewed, and each bind waits for a time of its own.
Watches can be made late by themselves.
An honest relay forgets a bind whose sender has reset the connection; a spiteful one delivers it
all the same, as a middlebox or a duplicating network would.
"""

import asyncio
import json
import ssl
import threading
from contextlib import closing, suppress
from dataclasses import dataclass, field
from random import Random
from time import monotonic

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
Answers = asyncio.Queue[tuple[float, int]]
"""When each answer on a connection began, and its code."""
_LATE_ANSWER_SECONDS = 5.0


@dataclass(slots=True)
class RelayedBind:
    """One bind on its way: whose, of which epoch, and what became of it."""

    pod: str
    epoch: int
    spiteful: bool
    arrived: float
    reset: bool = False
    """Whether its sender had reset the connection before it was delivered."""
    frozen: bool = False
    """Whether its sender stood still when it was delivered, and could take nothing back."""
    delivered: float | None = None
    answered: float | None = None
    code: int = 0


@dataclass(slots=True)
class History:
    """What all relays of one cluster saw."""

    binds: list[RelayedBind] = field(default_factory=list)
    epochs: dict[int, tuple[float, float]] = field(default_factory=dict)
    """When the request that began each epoch was delivered, and when it was answered."""

    def began_after(self, epoch: int) -> tuple[float, float] | None:
        """The same of the first epoch after this one."""
        later = [each for each in self.epochs if each > epoch]
        return self.epochs[min(later)] if later else None

    def landed_late(self, bind: RelayedBind) -> bool:
        """Whether the bind was delivered when another surely led, and was carried out."""
        other = self.began_after(bind.epoch)
        done = bind.code == 201 and bind.delivered is not None
        return done and other is not None and (bind.delivered or 0.0) > other[1]

    def lateness(self, bind: RelayedBind) -> float:
        """Seconds for which another had led when the bind, which landed late, was delivered."""
        other = self.began_after(bind.epoch)
        assert other is not None
        assert bind.delivered is not None
        return bind.delivered - other[1]

    def perhaps_late(self, bind: RelayedBind) -> bool:
        """Whether the bind may have been carried out after another had begun to lead."""
        other = self.began_after(bind.epoch)
        return other is not None and (bind.answered is None or bind.answered > other[0])


class HoldingRelay:
    """A relay on a thread of its own, with one connection to the API server for each of its own."""

    def __init__(
        self, server: tuple[str, int], tls: ssl.SSLContext, history: History, chance: Random
    ) -> None:
        self._server, self._tls = server, tls
        self._history, self._chance = history, chance
        self.frozen = False
        """Whether the extender stands still."""
        self._bad_seconds: float | None = None
        self._watch_seconds = 0.0
        self.late_events = 0
        """How often what a watch told was held back."""
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> str:
        """The address to use in place of the API server's."""
        self._thread.start()
        starting = asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._listener = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        return f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        async def end() -> None:
            self._listener.close()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            # Connections that were closed just now are given a moment to end.
            await asyncio.sleep(0.1)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def hold(self, seconds: float) -> None:
        """Drop every word about leases, and hold binds for up to so long each."""
        self._bad_seconds = seconds

    def restore(self) -> None:
        """Let new requests through; binds that are held are delivered when their time comes."""
        self._bad_seconds = None

    def delay_watches(self, seconds: float) -> None:
        """Tell of every change so much later from now on, in order; 0 is at once."""
        self._watch_seconds = seconds

    def _accept(self, reader: Reader, writer: Writer) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        with closing(writer), suppress(OSError, asyncio.IncompleteReadError):
            await self._relay(reader, writer)

    async def _relay(self, reader: Reader, writer: Writer) -> None:
        up_reader, up_writer = await asyncio.open_connection(*self._server, ssl=self._tls)
        answers = Answers()
        watch = asyncio.Event()
        back = asyncio.create_task(self._pump(up_reader, writer, answers, watch))
        gone = asyncio.create_task(_wait_closed(writer))
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                method, path = head.split(b" ", 2)[:2]
                what = path.split(b"?")[0].decode()
                if b"watch=" in path:
                    watch.set()
                if "/leases" in what and self._bad_seconds is not None:
                    # Nobody hears of it, and nobody is told.
                    await reader.read()
                    return
                while not answers.empty():
                    answers.get_nowait()
                bind = self._note(body) if what.endswith("/binding") else None
                if bind is not None and not await self._wait(bind, gone):
                    return
                began = monotonic()
                up_writer.write(head + body)
                if bind is not None:
                    await _finish(bind, answers)
                elif "/leases" in what and method != b"GET":
                    await self._note_epoch(began, body, answers)
        finally:
            back.cancel()
            gone.cancel()
            up_writer.transport.abort()

    def _note(self, body: bytes) -> RelayedBind:
        document = json.loads(body)
        record = json.loads(document["metadata"]["annotations"]["slicewise.io/allocation"])
        spiteful = self._chance.random() < 0.5
        bind = RelayedBind(
            document["metadata"]["uid"], record.get("epoch", 0), spiteful, monotonic()
        )
        self._history.binds.append(bind)
        return bind

    async def _wait(self, bind: RelayedBind, gone: "asyncio.Task[None]") -> bool:
        """Hold a bind for its time; whether it is delivered then."""
        if self._bad_seconds is not None:
            delay = self._chance.uniform(0, self._bad_seconds)
            if bind.spiteful:
                await asyncio.sleep(delay)
            else:
                await asyncio.wait({gone}, timeout=delay)
        bind.reset, bind.frozen = gone.done(), self.frozen
        if bind.reset and not bind.spiteful:
            return False
        bind.delivered = monotonic()
        return True

    async def _pump(
        self, source: Reader, sink: Writer, answers: Answers, watch: asyncio.Event
    ) -> None:
        """Pass answers back, and tell when each began; a sender that is gone is no reason to stop.

        A connection on which there was a watch has nothing else on it meanwhile.
        """
        with suppress(OSError):
            while chunk := await source.read(1 << 16):
                if chunk.startswith(b"HTTP/1.1 "):
                    answers.put_nowait((monotonic(), int(chunk[9:12])))
                elif watch.is_set() and self._watch_seconds:
                    self.late_events += 1
                    await asyncio.sleep(self._watch_seconds)
                sink.write(chunk)
        sink.close()

    async def _note_epoch(self, began: float, body: bytes, answers: Answers) -> None:
        ended, code = await answers.get()
        epoch = int(json.loads(body)["metadata"]["annotations"]["slicewise.io/epoch"])
        if code < 300:
            self._history.epochs.setdefault(epoch, (began, ended))


async def _wait_closed(writer: Writer) -> None:
    with suppress(OSError):
        await writer.wait_closed()


async def _finish(bind: RelayedBind, answers: Answers) -> None:
    """Note how a delivered bind was answered."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LATE_ANSWER_SECONDS):
            bind.answered, bind.code = await answers.get()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0
