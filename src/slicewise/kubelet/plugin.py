"""One device plugin: a gRPC server on a socket of its own, for one resource.

A handler sees ids and returns values; gRPC and protobuf stop here.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import grpc
import grpc.aio
import structlog

from slicewise.kubelet import v1beta1
from slicewise.kubelet.codec import WireError, decode, encode
from slicewise.kubelet.errors import DeniedError, KubeletError
from slicewise.kubelet.servers import start_server
from slicewise.kubelet.sockets import RECONNECT, socket_address, socket_stamp

_log = structlog.get_logger(__name__)
KUBELET_SOCKET: Final = "kubelet.sock"
_OPTIONS: Final = (("grpc.max_receive_message_length", 64 << 20),)
_REGISTER_SECONDS: Final = 15.0

Stamp = tuple[int, int, int]


class DevicePluginHandler(Protocol):
    """Answers the kubelet for one resource."""

    async def allocate(self, ids: tuple[str, ...]) -> v1beta1.ContainerAllocateResponse:
        """What a container that holds these units receives."""

    async def pre_start(self, ids: tuple[str, ...]) -> None:
        """Return once the container that holds these units may start."""


@dataclass(frozen=True, slots=True)
class PluginOffer:
    resource: str
    socket: str
    pre_start: bool = True


class DevicePlugin:
    """The server for one resource, which can be started again after the kubelet was."""

    def __init__(self, folder: Path, offer: PluginOffer, handler: DevicePluginHandler) -> None:
        self.offer = offer
        self.registered: Stamp | None = None
        """The kubelet that knows of this plugin, by its socket."""
        self._folder = folder
        self._handler = handler
        self._state: Hashable = None
        self._units: Callable[[], Iterable[v1beta1.Unit]] = tuple
        self._changed = asyncio.Event()
        self._server: Any = None
        self._stamp: Stamp | None = None

    @property
    def path(self) -> Path:
        return self._folder / self.offer.socket

    @property
    def listening(self) -> bool:
        """Whether the socket the plugin made is still there."""
        return self._server is not None and socket_stamp(self.path) == self._stamp

    def publish(self, state: Hashable, units: Callable[[], Iterable[v1beta1.Unit]]) -> None:
        """Tell the kubelet of these units from now on, unless it was told of the same state.

        They are listed only when the kubelet listens, so that no list stays in memory.
        """
        if state == self._state:
            return
        self._state, self._units = state, units
        # Whoever waits holds the old event; the next change has one of its own.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def register(self) -> None:
        """Listen on a fresh socket and make the plugin known to the kubelet of this moment."""
        # A stream that ends after the new registration would end the new one as well.
        await self.stop()
        kubelet = self._folder / KUBELET_SOCKET
        stamp = socket_stamp(kubelet)
        await self._listen()
        request = v1beta1.RegisterRequest(
            v1beta1.VERSION, self.offer.socket, self.offer.resource, self._options()
        )
        try:
            address = socket_address(kubelet)
            async with grpc.aio.insecure_channel(address, options=RECONNECT) as channel:
                call = channel.unary_unary(f"/{v1beta1.REGISTRATION}/Register")
                # A socket that was just made may refuse for a moment.
                await call(encode(request), timeout=_REGISTER_SECONDS, wait_for_ready=True)
        except grpc.RpcError as error:
            raise KubeletError(
                f"{self.offer.resource}: the kubelet does not register it: {describe(error)}"
            ) from error
        self.registered = stamp

    async def stop(self) -> None:
        """End every stream and remove the socket."""
        self.registered = None
        server, self._server = self._server, None
        if server is None:
            return
        await server.stop(None)
        with contextlib.suppress(OSError):
            if socket_stamp(self.path) == self._stamp:
                self.path.unlink()

    async def _listen(self) -> None:
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        handlers = {
            "GetDevicePluginOptions": unary(self._get_options),
            "ListAndWatch": stream(self._list),
            "Allocate": unary(self._allocate),
            "GetPreferredAllocation": unary(_prefer_nothing),
            "PreStartContainer": unary(self._pre_start),
        }
        # The kubelet is root, and nobody else has anything to ask here.
        services = {v1beta1.DEVICE_PLUGIN: handlers}
        self._server = await start_server(self.path, services, options=_OPTIONS)
        self._stamp = socket_stamp(self.path)

    def _options(self) -> v1beta1.Options:
        return v1beta1.Options(pre_start_required=self.offer.pre_start)

    async def _get_options(self, _request: bytes, _call: Any) -> bytes:
        return encode(self._options())

    async def _list(self, _request: bytes, _call: Any) -> AsyncIterator[bytes]:
        while True:
            changed = self._changed
            yield await asyncio.to_thread(lambda: v1beta1.encode_units(self._units()))
            await changed.wait()

    async def _allocate(self, request: bytes, call: Any) -> bytes:
        async def answer() -> bytes:
            asked = decode(v1beta1.AllocateRequest, request).containers
            given = [await self._handler.allocate(each.ids) for each in asked]
            return encode(v1beta1.AllocateResponse(tuple(given)))

        return await self._answer("Allocate", answer, call)

    async def _pre_start(self, request: bytes, call: Any) -> bytes:
        async def answer() -> bytes:
            await self._handler.pre_start(decode(v1beta1.PreStartRequest, request).ids)
            return b""

        return await self._answer("PreStartContainer", answer, call)

    async def _answer(self, verb: str, answer: Callable[[], Any], call: Any) -> bytes:
        """The answer, or its error as the kubelet shows it to users."""
        try:
            content: bytes = await answer()
        except DeniedError as error:
            code, why = grpc.StatusCode.FAILED_PRECONDITION, str(error)
        except WireError as error:
            code, why = grpc.StatusCode.INVALID_ARGUMENT, str(error)
        except Exception:
            _log.exception("call failed", verb=verb, resource=self.offer.resource)
            code, why = grpc.StatusCode.INTERNAL, f"slicewise: {verb} failed; see the agent's log"
        else:
            return content
        await call.abort(code, why)
        raise AssertionError("an aborted call has ended")


def describe(error: Any) -> str:
    """A gRPC failure in one line."""
    code = getattr(error, "code", lambda: None)()
    details = getattr(error, "details", lambda: None)()
    return f"{getattr(code, 'name', code)}: {details}" if code else str(error)


async def _prefer_nothing(_request: bytes, _call: Any) -> bytes:
    # A response without containers has no bytes.
    return b""
