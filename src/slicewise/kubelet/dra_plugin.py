"""The DRA plugin of one driver: its services, and the socket by which the kubelet finds them.

The kubelet watches its registry folder, so nothing has to be registered again after its restart.
A handler sees claims and returns values; gRPC and protobuf stop here.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import grpc
import grpc.aio
import structlog

from slicewise.kubelet import dra_messages as wire
from slicewise.kubelet.codec import WireError, decode, encode
from slicewise.kubelet.dra_messages import ClaimRef, DeviceHealth, PreparedDevice
from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.servers import start_server
from slicewise.kubelet.sockets import socket_stamp
from slicewise.model import SlicewiseError

R = TypeVar("R")
_log = structlog.get_logger(__name__)
LOOK_SECONDS: Final = 1.0
# A list of health that is older than 30 s counts as unknown.
HEALTH_SECONDS: Final = 10.0
_SOCKET: Final = "dra.sock"


class ClaimHandler(Protocol):
    """Answers the kubelet for claims; every failure is a SlicewiseError with a plain sentence."""

    async def prepare(self, ref: ClaimRef) -> tuple[PreparedDevice, ...]:
        """What the claim brings to its containers, the same at every call."""

    async def unprepare(self, ref: ClaimRef) -> None:
        """Take back what the claim brought; nothing where it brought nothing."""


@dataclass(frozen=True, slots=True)
class DraFolders:
    """Folders of one kubelet, which it must see under the same names."""

    registry: Path = Path("/var/lib/kubelet/plugins_registry")
    """Where it looks for plugins."""
    plugins: Path = Path("/var/lib/kubelet/plugins")
    """Where plugins keep their sockets, one folder for each driver."""


class DraPlugin:
    """One driver's server; `run` serves until cancelled."""

    def __init__(
        self,
        driver: str,
        folders: DraFolders,
        handler: ClaimHandler,
        health: Callable[[], Sequence[DeviceHealth]],
    ) -> None:
        self.driver = driver
        self.registered = False
        """Whether the kubelet has taken the driver on."""
        self.on_registered: Callable[[], None] = lambda: None
        """Called whenever it has."""
        self._handler = handler
        self._health = health
        self._changed = asyncio.Event()
        self._services: Any = None
        self._registry: Any = None
        self._stamps: tuple[object, object] = (None, None)
        self.endpoint = folders.plugins / driver / _SOCKET
        self.registration = folders.registry / f"{driver}-reg.sock"

    @property
    def listening(self) -> bool:
        """Whether both sockets are still there."""
        found = (socket_stamp(self.endpoint), socket_stamp(self.registration))
        return self._registry is not None and found == self._stamps

    def health_changed(self) -> None:
        """Tell the kubelet the health of every device now."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def run(self) -> None:
        """Listen until cancelled, again whenever a socket was removed."""
        try:
            while True:
                if not self.listening:
                    await self._listen_again()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await self.stop()

    async def start(self) -> None:
        """Serve claims, and only then be found by the kubelet."""
        await self.stop()
        handlers = {
            "NodePrepareResources": grpc.unary_unary_rpc_method_handler(self._prepare),
            "NodeUnprepareResources": grpc.unary_unary_rpc_method_handler(self._unprepare),
        }
        watch = {"NodeWatchResources": grpc.unary_stream_rpc_method_handler(self._watch)}
        services = {wire.DRA_V1: handlers, wire.DRA_V1BETA1: handlers, wire.HEALTH: watch}
        for path in (self.endpoint, self.registration):
            path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._services = await start_server(self.endpoint, services)
        registry = {
            "GetInfo": grpc.unary_unary_rpc_method_handler(self._get_info),
            "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(self._hear_status),
        }
        self._registry = await start_server(self.registration, {wire.REGISTRATION: registry})
        self._stamps = (socket_stamp(self.endpoint), socket_stamp(self.registration))

    async def stop(self) -> None:
        """End every call and remove the sockets, the one the kubelet looks for first."""
        self.registered = False
        registry, self._registry = self._registry, None
        services, self._services = self._services, None
        for server, path, stamp in zip(
            (registry, services), (self.registration, self.endpoint), reversed(self._stamps),
            strict=True,
        ):  # fmt: skip
            if server is None:
                continue
            await server.stop(None)
            with contextlib.suppress(OSError):
                if socket_stamp(path) == stamp:
                    path.unlink()

    async def _listen_again(self) -> None:
        try:
            await self.start()
        except (KubeletError, OSError) as error:
            _log.warning("DRA plugin not serving", driver=self.driver, error=str(error))
        else:
            _log.info("DRA plugin serving", driver=self.driver, socket=str(self.endpoint))

    async def _get_info(self, _request: bytes, _call: Any) -> bytes:
        return encode(
            wire.PluginInfo(wire.PLUGIN_TYPE, self.driver, str(self.endpoint), wire.VERSIONS)
        )

    async def _hear_status(self, request: bytes, _call: Any) -> bytes:
        status = decode(wire.RegistrationStatus, request)
        self.registered = status.registered
        if status.registered:
            _log.info("DRA plugin registered", driver=self.driver)
            self.on_registered()
        else:
            _log.error("DRA plugin not registered", driver=self.driver, error=status.error)
        return b""

    async def _prepare(self, request: bytes, call: Any) -> bytes:
        async def answer(ref: ClaimRef) -> wire.PrepareResponse:
            try:
                return wire.PrepareResponse(await self._handler.prepare(ref))
            except SlicewiseError as error:
                return wire.PrepareResponse(error=_refuse("claim not prepared", ref, error))

        return encode(wire.PrepareResponses(await _answer_all(request, call, answer)))

    async def _unprepare(self, request: bytes, call: Any) -> bytes:
        async def answer(ref: ClaimRef) -> wire.UnprepareResponse:
            try:
                await self._handler.unprepare(ref)
            except SlicewiseError as error:
                return wire.UnprepareResponse(_refuse("claim not unprepared", ref, error))
            return wire.UnprepareResponse()

        return encode(wire.UnprepareResponses(await _answer_all(request, call, answer)))

    async def _watch(self, _request: bytes, _call: Any) -> AsyncIterator[bytes]:
        while True:
            changed = self._changed
            yield encode(wire.HealthResponse(tuple(self._health())))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), HEALTH_SECONDS)


async def _answer_all(
    request: bytes, call: Any, answer: Callable[[ClaimRef], Awaitable[R]]
) -> Mapping[str, R]:
    """An answer for every claim that was named, since the kubelet takes no fewer."""
    try:
        asked = decode(wire.ClaimsRequest, request).claims
    except WireError as error:
        await call.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        raise
    return {ref.uid: await answer(ref) for ref in asked}


def _refuse(phrase: str, ref: ClaimRef, error: SlicewiseError) -> str:
    _log.warning(phrase, claim=f"{ref.namespace}/{ref.name}", reason=str(error))
    return f"slicewise: {error}"
