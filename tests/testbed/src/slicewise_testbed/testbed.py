"""A testbed: a temporary folder, the processes in it, and the keeper that removes them all.

Without root the processes share the machine's namespaces, which is enough for a control plane.
"""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from slicewise_testbed.errors import TestbedError
from slicewise_testbed.keeper import OWN_NETWORK, remove_traces
from slicewise_testbed.networks import Network, find_child, join
from slicewise_testbed.reaper import SOCKET

PREFIX = "swtb-"
_WATCHES = 1024
_LOCK = "keeper.lock"
_LASTING = "lasting"
_YOUNG_SECONDS = 10.0
# A unix socket's path ends at 107 bytes; the kubelet's, below this folder, takes up to 60.
_LONGEST_FOLDER = 45


class Testbed:
    """A folder and the processes in it, all gone after close or after the death of this process."""

    __test__ = False

    def __init__(self, folder: Path, keeper: "subprocess.Popen[bytes] | None" = None) -> None:
        self.folder = folder
        self._keeper = keeper
        self._lifeline: int | None = None
        self.network: Network | None = None
        """Its own network; None when it shares the machine's."""

    @classmethod
    def start(cls, *, lasting: bool = False, own_network: bool = False) -> "Testbed":
        """A new testbed; a lasting one lives until it is closed, others as long as this process.

        In a network of its own, which needs root, Services lead to their pods.
        """
        sweep()
        _raise_watches()
        folder = _new_folder(lasting)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        read_end, write_end = os.pipe()
        # The open lock file travels with the keeper, and the kernel frees it when the keeper ends.
        passed = (lock,) if lasting else (lock, read_end)
        with (folder / "logs" / "keeper").open("wb") as log:
            keeper = subprocess.Popen(
                [
                    *(sys.executable, "-m", "slicewise_testbed.keeper", folder),
                    *map(str, passed),
                    *((OWN_NETWORK,) if own_network else ()),
                ],
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
            )
        (folder / "keeper.pid").write_text(f"{keeper.pid}\n")
        os.close(lock)
        os.close(read_end)
        bed = cls(folder, keeper)
        bed._lifeline = write_end
        wait_until(bed._answers, 15.0, lambda: f"the keeper does not answer: {bed.tail('keeper')}")
        if own_network:
            bed.network = join(find_child(keeper.pid))
            bed.run("forwarding", ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])
        return bed

    @property
    def lasting(self) -> bool:
        """Whether the testbed was made to outlive the process that started it."""
        return (self.folder / _LASTING).exists()

    def spawn(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> int:
        """The process id, as seen inside the testbed, of a started program."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), **(env or {})}
        log = str(self.log(name))
        reply = self._ask(do="spawn", name=name, argv=list(argv), env=environment, log=log)
        return int(reply["pid"])

    def run(self, name: str, argv: Sequence[str]) -> str:
        """What a short program printed; a failure is an error that carries it."""
        self.spawn(name, argv)
        code = self._ask(do="wait", name=name)["code"]
        if code:
            raise TestbedError(f"{' '.join(argv)} ended with {code}: {self.tail(name)}")
        return self.log(name).read_text()

    def stop(
        self,
        name: str,
        number: signal.Signals = signal.SIGTERM,
        *,
        patience_seconds: float = 10.0,
    ) -> None:
        """The named process is gone, killed if the signal does not end it in time."""
        self._ask(do="stop", name=name, signal=int(number), patience_seconds=patience_seconds)

    def alive(self, name: str) -> bool:
        """Whether the named process was started and has not ended."""
        process = self._ask(do="list").get(name)
        return process is not None and process["code"] is None

    def processes(self) -> tuple[str, ...]:
        """The names of the running processes."""
        return tuple(name for name, it in self._ask(do="list").items() if it["code"] is None)

    def log(self, name: str) -> Path:
        """Where the named process writes."""
        return self.folder / "logs" / name

    def tail(self, name: str, lines: int = 8) -> str:
        """The last lines the named process wrote, as one."""
        with contextlib.suppress(OSError):
            return " | ".join(self.log(name).read_text(errors="replace").splitlines()[-lines:])
        return "no log"

    def close(self) -> None:
        """Every process, mount, namespace, control group and file of the testbed is gone."""
        with contextlib.suppress(OSError):
            lock = os.open(self.folder / _LOCK, os.O_RDWR)
            with contextlib.suppress(OSError, TestbedError):
                self._ask(do="end")
            # Held by the keeper until it has removed everything.
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.close(lock)
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        if self._keeper is not None:
            self._keeper.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _answers(self) -> bool:
        try:
            return self._ask(do="list") == {}
        except OSError:
            return False

    def _ask(self, **request: Any) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(self.folder / SOCKET))
            line.sendall(json.dumps(request).encode() + b"\n")
            answer = line.makefile("rb").readline()
        if not answer:
            raise TestbedError(f"the keeper of {self.folder} hung up")
        reply: dict[str, Any] = json.loads(answer)
        if "error" in reply:
            raise TestbedError(f"{request['do']} {request.get('name', '')}: {reply['error']}")
        return reply


def _raise_watches() -> None:
    """Let several clusters watch files at a time: each node takes dozens of inotify instances."""
    limit = Path("/proc/sys/fs/inotify/max_user_instances")
    # Without root the clusters have no real nodes, and need no more than there is.
    with contextlib.suppress(OSError):
        if int(limit.read_text()) < _WATCHES:
            limit.write_text(str(_WATCHES))


def wait_until(
    condition: Callable[[], object],
    seconds: float,
    complaint: Callable[[], str],
    *,
    pause: float = 0.05,
) -> None:
    """The condition holds; if it does not in time, the complaint is raised."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TestbedError(f"after {seconds:.0f} s {complaint()}")
        time.sleep(pause)


def _new_folder(lasting: bool) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    if len(str(folder)) > _LONGEST_FOLDER:
        folder.rmdir()
        raise TestbedError(f"{folder} is too long a path for unix sockets; set TMPDIR to a shorter")
    (folder / "logs").mkdir()
    if lasting:
        (folder / _LASTING).touch()
    return folder


def living() -> Iterator[Testbed]:
    """The testbeds of this user whose keeper runs."""
    for folder, stale in _folders():
        if not stale:
            yield Testbed(folder)


def sweep(older_than_seconds: float = _YOUNG_SECONDS) -> None:
    """Folders and control groups whose keeper was killed are gone."""
    for folder, stale in _folders():
        # A folder is a moment older than the lock in it.
        if stale and time.time() - folder.stat().st_mtime > older_than_seconds:
            remove_traces(folder)


def _folders() -> Iterator[tuple[Path, bool]]:
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stale = True
            except BlockingIOError:
                stale = False
            finally:
                os.close(lock)
            yield folder, stale
