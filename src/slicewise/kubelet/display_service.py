"""gpu-manager's display socket: the tree of GPUs, usage and version, for tools on the node."""

import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from slicewise.kubelet.codec import encode, many, numbers, one, real, text
from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.servers import start_server
from slicewise.kubelet.sockets import release_folder

SERVICE: Final = "display.GPUDisplay"
SOCKET: Final = Path("/var/run/gpu-manager.sock")
# Requests are empty.
_OPTIONS: Final = (("grpc.max_receive_message_length", 1 << 10),)


@dataclass(frozen=True, slots=True)
class DisplayedGraph:
    graph: str = text(1)


@dataclass(frozen=True, slots=True)
class DisplayedVersion:
    version: str = text(1)


@dataclass(frozen=True, slots=True)
class DisplayedGpu:
    """One GPU of a container: percent and MiB in use, and its MiB in all."""

    id: str = text(1)
    index: str = text(2)
    gpu: float = real(10)
    mem: float = real(11)
    pids: tuple[int, ...] = numbers(12)
    device_mem: float = real(13)


@dataclass(frozen=True, slots=True)
class DisplayedGpus:
    dev: tuple[DisplayedGpu, ...] = many(1, DisplayedGpu)


@dataclass(frozen=True, slots=True)
class DisplayedRequest:
    """What a container asked for, in GPUs and MiB."""

    gpu: float = real(1)
    mem: float = real(2)


@dataclass(frozen=True, slots=True)
class ContainerEntry:
    key: str = text(1)
    value: DisplayedGpus | None = one(2, DisplayedGpus)


@dataclass(frozen=True, slots=True)
class RequestEntry:
    key: str = text(1)
    value: DisplayedRequest | None = one(2, DisplayedRequest)


@dataclass(frozen=True, slots=True)
class DisplayedPod:
    stat: tuple[ContainerEntry, ...] = many(1, ContainerEntry)
    project: str = text(2)
    user: str = text(3)
    cluster: str = text(4)
    spec: tuple[RequestEntry, ...] = many(5, RequestEntry)


@dataclass(frozen=True, slots=True)
class PodEntry:
    key: str = text(1)
    value: DisplayedPod | None = one(2, DisplayedPod)


@dataclass(frozen=True, slots=True)
class DisplayedUsage:
    usage: tuple[PodEntry, ...] = many(1, PodEntry)


@dataclass(frozen=True, slots=True)
class DisplaySource:
    """Where the answers come from."""

    graph: Callable[[], DisplayedGraph]
    usage: Callable[[], DisplayedUsage]
    version: Callable[[], DisplayedVersion]


class DisplaySocket:
    """The server behind one path."""

    def __init__(self, path: Path, source: DisplaySource) -> None:
        self._path = path
        self._source = source
        self._server: Any = None

    async def open(self) -> None:
        """Answer from now on; an error where somebody else does."""
        if _is_answered(self._path):
            raise KubeletError(f"{self._path} is served by another program")
        methods = {
            "PrintGraph": self._source.graph,
            "PrintUsages": self._source.usage,
            "Version": self._source.version,
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(_answer(read))
            for name, read in methods.items()
        }
        self._server = await start_server(self._path, {SERVICE: handlers}, options=_OPTIONS)

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        await server.stop(None)
        with contextlib.suppress(OSError):
            self._path.unlink()
        release_folder(self._path.parent)


def _answer(read: Callable[[], Any]) -> Callable[[bytes, Any], Any]:
    async def answer(_: bytes, __: Any) -> bytes:
        return encode(read())

    return answer


def _is_answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
