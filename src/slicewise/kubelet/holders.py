"""Asks the kubelet which container holds which units, over its pod-resources socket.

Answers may be large: a container that holds memory by the MiB is listed once for every MiB. So
a pod is looked for in the bytes, and only the pod that is found is read.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import random
from time import monotonic
from typing import Any, Final, Protocol

import grpc
import grpc.aio

from slicewise.kubelet.codec import WireError, decode, delimited, encode, split
from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.plugin import describe
from slicewise.kubelet.podresources import (
    V1,
    V1_ALPHA,
    AllocatableResponse,
    GetRequest,
    GetResponse,
    PodResources,
)
from slicewise.kubelet.sockets import RECONNECT, socket_address
from slicewise.model.backoff import Backoff

_OPTIONS: Final = (("grpc.max_receive_message_length", -1), *RECONNECT)
_SECONDS: Final = 10.0
_BACKOFF: Final = Backoff(first=0.05, longest=0.1)
# The kubelet answers a hundred questions a second, and a connection breaks when it starts again.
_PASSING: Final = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)


@dataclass(frozen=True, slots=True)
class Holder:
    """A container by the names the kubelet tells, and all it holds: resource to ids."""

    namespace: str
    pod: str
    container: str
    units: Mapping[str, frozenset[str]]


class HolderSource(Protocol):
    """Whoever knows which container holds which units."""

    async def list(self) -> tuple[Holder, ...]:
        """Every container of an active pod."""


class PodResourcesClient:
    """One connection to one kubelet; it is made again when the kubelet starts again."""

    def __init__(self, path: Path, *, seconds: float = _SECONDS) -> None:
        self._path = path
        self._seconds = seconds
        self._channel: Any = None
        self._service = V1
        self._can_get = True
        self._current: asyncio.Task[bytes] | None = None
        self._next: asyncio.Task[bytes] | None = None

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def list(self) -> tuple[Holder, ...]:
        """Every container of an active pod, as the kubelet knows them from now on."""
        data = await self._list_bytes()
        return tuple(holder for pod in _pods(data) for holder in read_holders(pod))

    async def find(self, resource: str, ids: frozenset[str]) -> Holder | None:
        """The container that holds exactly these units; None when no container does."""
        data = await self._list_bytes()
        return next(iter(find_holders(data, resource, ids)), None)

    async def get(self, namespace: str, name: str) -> tuple[Holder, ...] | None:
        """The containers of one pod; None when the kubelet does not know it or cannot tell."""
        if not self._can_get or self._service != V1:
            return None
        try:
            data = await self._call(V1, "Get", encode(GetRequest(name, namespace)))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                self._can_get = False
            return None
        pod = decode(GetResponse, data).pod
        return None if pod is None else tuple(_read_pod(pod))

    async def allocatable(self) -> Mapping[str, frozenset[str]]:
        """Every healthy unit the kubelet knows, by resource."""
        try:
            data = await self._call(V1, "GetAllocatableResources", b"")
        except grpc.RpcError as error:
            raise KubeletError(f"pod-resources {self._path}: {describe(error)}") from error
        return _merge(decode(AllocatableResponse, data).devices)

    async def _list_bytes(self) -> bytes:
        """An answer that was asked for after this call began, shared by all who wait for it."""
        if self._current is None or self._current.done():
            self._current = asyncio.ensure_future(self._list_now())
            return await asyncio.shield(self._current)
        if self._next is None or self._next.done():
            self._next = asyncio.ensure_future(self._list_after(self._current))
        return await asyncio.shield(self._next)

    async def _list_after(self, current: asyncio.Task[bytes]) -> bytes:
        await asyncio.wait([current])
        own = asyncio.current_task()
        if own is not None:
            self._current = own
        self._next = None
        return await self._list_now()

    async def _list_now(self) -> bytes:
        end, attempt = monotonic() + self._seconds, 0
        while True:
            try:
                return await self._call(self._service, "List", b"")
            except grpc.RpcError as error:
                code = error.code()
                if code is grpc.StatusCode.UNIMPLEMENTED and self._service == V1:
                    self._service = V1_ALPHA
                    continue
                if code not in _PASSING or monotonic() > end:
                    raise KubeletError(f"pod-resources {self._path}: {describe(error)}") from error
            attempt += 1
            await asyncio.sleep(_BACKOFF.delay(attempt, random()))

    async def _call(self, service: str, method: str, request: bytes) -> bytes:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(socket_address(self._path), options=_OPTIONS)
        call = self._channel.unary_unary(f"/{service}/{method}")
        # After a restart of the kubelet the connection comes back by itself, within moments.
        data: bytes = await call(request, timeout=self._seconds, wait_for_ready=True)
        return data


def find_holders(data: bytes, resource: str, ids: frozenset[str]) -> tuple[Holder, ...]:
    """Every container of a list that holds exactly these units of the resource."""
    if not ids:
        return ()
    needle = delimited(2, min(ids).encode())
    return tuple(
        holder
        for pod in _pods(data)
        if needle in pod
        for holder in read_holders(pod)
        if holder.units.get(resource) == ids
    )


def read_holders(pod: bytes) -> tuple[Holder, ...]:
    """The containers of one pod of a list."""
    return tuple(_read_pod(decode(PodResources, pod)))


def _read_pod(pod: PodResources) -> list[Holder]:
    return [
        Holder(pod.namespace, pod.name, each.name, _merge(each.devices)) for each in pod.containers
    ]


def _merge(devices: Any) -> dict[str, frozenset[str]]:
    merged: dict[str, set[str]] = {}
    for each in devices:
        merged.setdefault(each.resource, set()).update(each.ids)
    return {resource: frozenset(ids) for resource, ids in merged.items()}


def _pods(data: bytes) -> list[bytes]:
    try:
        return [value for at, wire, value in split(data) if at == 1 and wire == 2]
    except IndexError as error:
        raise WireError(f"pod-resources: {len(data)} bytes end in the middle") from error
