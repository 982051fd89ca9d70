"""The socket of a pod on which gpu-manager's library registers its container.

The request comes from a tenant: whatever it says is a claim, and whoever answers checks it.
"""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

import grpc
import grpc.aio
import structlog

from slicewise.kubelet.codec import WireError, decode, text
from slicewise.kubelet.errors import DeniedError
from slicewise.kubelet.servers import start_server
from slicewise.kubelet.sockets import release_folder

_log = structlog.get_logger(__name__)
SERVICE: Final = "vcuda.VCUDAService"
SOCKET: Final = "vcuda.sock"
# A registration is never larger, and takes no longer.
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 1 << 12),
    ("grpc.max_connection_idle_ms", 10_000),
    ("grpc.max_connection_age_ms", 60_000),
)
# How many processes of one pod may register at the same time.
_MOST_CALLS: Final = 256
_LOG_SECONDS: Final = 1.0
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class VcudaRegistration:
    """What a process in a container says of itself."""

    bus: str = text(1)
    uid: str = text(2)
    container: str = text(3)
    identity: str = text(4)


RegisterCall = Callable[[VcudaRegistration], Awaitable[None]]


class VcudaSocket:
    def __init__(self, folder: Path, register: RegisterCall) -> None:
        self._path = folder / SOCKET
        self._register = register
        self._server: Any = None
        self._logged_at = -_LOG_SECONDS

    async def open(self) -> None:
        """Processes of the pod can register from now on."""
        handlers = {"RegisterVDevice": grpc.unary_unary_rpc_method_handler(self._answer)}
        self._server = await start_server(
            self._path,
            {SERVICE: handlers},
            # Whoever may run in the container may register.
            mode=0o777,
            options=_OPTIONS,
            maximum_concurrent_rpcs=_MOST_CALLS,
        )

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)
        with contextlib.suppress(OSError):
            self._path.unlink()
        release_folder(self._path.parent)

    async def _answer(self, request: bytes, call: Any) -> bytes:
        try:
            await self._register(decode(VcudaRegistration, request))
        except (DeniedError, WireError) as error:
            if monotonic() - self._logged_at >= _LOG_SECONDS:
                self._logged_at = monotonic()
                reason = str(error)[:_SHOWN]
                _log.warning("registration refused", socket=str(self._path), reason=reason)
            await call.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:_SHOWN])
        except Exception:
            _log.exception("registration failed", socket=str(self._path))
            await call.abort(grpc.StatusCode.INTERNAL, "see the agent's log")
        return b""
