"""The first process of a testbed: starts and stops its processes by name, on request.

Requests are JSON lines on a unix socket in the testbed's folder, answered by one line each.
Being the first process of its PID namespace, its end is the end of all others.
"""

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from slicewise_testbed import kernel

SOCKET = "keeper.sock"
Reply = dict[str, Any]


class Ask(msgspec.Struct):
    """One request; each deed uses the fields it needs."""

    do: str
    name: str = ""
    argv: list[str] = []
    env: dict[str, str] = {}
    log: str = ""
    signal: int = signal.SIGTERM
    patience_seconds: float = 10.0


@dataclass(slots=True)
class Process:
    """A started process and its exit code to come."""

    pid: int
    code: asyncio.Future[int]


def serve(folder: Path, leash: int, alone: bool, apart: bool = False) -> None:
    """Requests are served until told to end, or until the keeper lets go of the leash."""
    if apart:
        kernel.unshare(kernel.CLONE_NEWNET)
    if alone:
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID_NODEV_NOEXEC)
    # Ctrl-C in the terminal is for the test run alone; the keeper decides when this ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(Reaper(folder).serve(leash))


class Reaper:
    """The named processes of one testbed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, Process] = {}
        self._end = asyncio.Event()

    async def serve(self, leash: int) -> None:
        """Answer requests until the end."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        loop.add_reader(leash, self._end.set)
        await asyncio.start_unix_server(self._converse, self._folder / SOCKET)
        await self._end.wait()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            async for line in reader:
                try:
                    reply = await self._answer(msgspec.json.decode(line, type=Ask))
                except (OSError, KeyError, msgspec.MsgspecError) as broken:
                    reply = {"error": f"{type(broken).__name__}: {broken}"}
                writer.write(msgspec.json.encode(reply) + b"\n")
                await writer.drain()
            writer.close()

    async def _answer(self, ask: Ask) -> Reply:
        match ask.do:
            case "spawn":
                return {"pid": self._spawn(ask)}
            case "wait":
                return {"code": await asyncio.shield(self._processes[ask.name].code)}
            case "stop":
                return {"code": await self._stop(ask)}
            case "list":
                return {name: _describe(it) for name, it in self._processes.items()}
            case "end":
                self._end.set()
                return {}
        return {"error": f"do={ask.do!r}: expected spawn, wait, stop, list or end"}

    def _spawn(self, ask: Ask) -> int:
        known = self._processes.get(ask.name)
        if known and not known.code.done():
            raise KeyError(f"{ask.name} runs already")
        log = os.open(ask.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(ask, log, parent)
        os.close(log)
        self._processes[ask.name] = Process(pid, asyncio.get_running_loop().create_future())
        return pid

    async def _stop(self, ask: Ask) -> int:
        process = self._processes[ask.name]
        if not process.code.done():
            os.kill(process.pid, ask.signal)
        try:
            return await asyncio.wait_for(asyncio.shield(process.code), ask.patience_seconds)
        except TimeoutError:
            os.kill(process.pid, signal.SIGKILL)
            return await asyncio.shield(process.code)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                for process in self._processes.values():
                    if process.pid == ended[0] and not process.code.done():
                        process.code.set_result(os.waitstatus_to_exitcode(ended[1]))


def _become(ask: Ask, log: int, parent: int) -> None:
    """The forked child turns into the program, or says in its log why it could not."""
    try:
        kernel.die_with_parent()
        # A parent that ended before that call is no longer there to die.
        if os.getppid() != parent:
            os._exit(127)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.execvpe(ask.argv[0], ask.argv, ask.env)
    except BaseException as broken:
        os.write(2, f"cannot start {ask.argv[0]}: {broken}\n".encode())
    finally:
        os._exit(127)


def _describe(process: Process) -> Reply:
    return {"pid": process.pid, "code": process.code.result() if process.code.done() else None}
