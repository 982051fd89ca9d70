"""What a Service does for extenders: each new connection goes to one that says it is ready."""

import contextlib
import itertools
import socket
import threading
import urllib.request
from collections.abc import Sequence


class Balancer:
    """Listens on loopback and forwards; connections that are open stay where they are."""

    def __init__(self, backends: Sequence[str]) -> None:
        self._backends = tuple(backends)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "Balancer":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # A blocked accept is woken by this, and not by close alone.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _choose(self) -> str | None:
        return next((each for each in self._backends if is_ready(each)), None)

    def _forward(self, client: socket.socket) -> None:
        ready = self._choose()
        if ready is None:
            client.close()
            return
        host, _, port = ready.removeprefix("http://").rpartition(":")
        with contextlib.suppress(OSError):
            server = socket.create_connection((host, int(port)))
            threading.Thread(target=_pump, args=(server, client), daemon=True).start()
            _pump(client, server)


class Splitter(Balancer):
    """A balancer that asks nobody: connections go to each in turn, whoever leads."""

    def __init__(self, backends: Sequence[str]) -> None:
        super().__init__(backends)
        self._turns = itertools.cycle(self._backends)

    def _choose(self) -> str | None:
        return next(self._turns)


class FirstOpen(Balancer):
    """Connections go to the first that can be connected to, whatever is spoken there."""

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def _choose(self) -> str | None:
        return next((each for each in self._backends if _is_open(each)), None)


def _is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def is_ready(url: str) -> bool:
    """Whether the extender there says so within a second."""
    try:
        with urllib.request.urlopen(f"{url}/leadz", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(1 << 16):
            target.sendall(part)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
