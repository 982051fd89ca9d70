"""The kubelet's side of a node over real sockets: registration, units, and who holds which."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from slicewise.kubelet.codec import decode, encode
from slicewise.kubelet.podresources import (
    V1,
    ContainerDevices,
    ContainerResources,
    GetRequest,
    GetResponse,
    ListResponse,
    PodResources,
)
from slicewise.kubelet.v1beta1 import (
    DEVICE_PLUGIN,
    HEALTHY,
    REGISTRATION,
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    Devices,
    PreStartRequest,
    RegisterRequest,
)

_OPTIONS = (("grpc.max_receive_message_length", 4 * 1024 * 1024),)


@dataclass(slots=True)
class _Plugin:
    """A registered plugin: the way to it, its units, and those that are held."""

    channel: Any
    listening: asyncio.Task[None] | None = None
    units: list[str] = field(default_factory=list)
    given: set[str] = field(default_factory=set)
    known: asyncio.Event = field(default_factory=asyncio.Event)


class Kubelet:
    """Answers like a kubelet, as far as a device plugin can tell."""

    def __init__(self, root: Path) -> None:
        self.plugins_folder = root / "device-plugins"
        self.pod_resources = root / "pod-resources" / "kubelet.sock"
        self._servers: list[Any] = []
        self._plugins: dict[str, _Plugin] = {}
        self._held: dict[str, dict[str, list[ContainerDevices]]] = {}

    async def start(self) -> None:
        """Listen for plugins and for those who ask who holds what."""
        self.plugins_folder.mkdir(parents=True)
        self.pod_resources.parent.mkdir(parents=True)
        unary = grpc.unary_unary_rpc_method_handler
        await self._serve(
            self.plugins_folder / "kubelet.sock", REGISTRATION, {"Register": unary(self._register)}
        )
        answers = {"List": unary(self._list), "Get": unary(self._get)}
        await self._serve(self.pod_resources, V1, answers)

    async def stop(self) -> None:
        """Let go of every plugin."""
        for plugin in self._plugins.values():
            if plugin.listening is not None:
                plugin.listening.cancel()
            await plugin.channel.close()
        for server in self._servers:
            await server.stop(None)

    async def wait_for(self, resources: Sequence[str], seconds: float) -> None:
        """Return once each of these resources has units."""
        async with asyncio.timeout(seconds):
            while not all(each in self._plugins for each in resources):
                await asyncio.sleep(0.01)
            for each in resources:
                await self._plugins[each].known.wait()

    async def admit(self, pod: str, container: str, resource: str, amount: int) -> tuple[str, ...]:
        """The units that a container gets, Allocate called for them."""
        plugin = self._plugins[resource]
        free = (unit for unit in plugin.units if unit not in plugin.given)
        ids = tuple(islice(free, amount))
        plugin.given.update(ids)
        request = AllocateRequest((ContainerAllocateRequest(ids),))
        answer = await self._call(plugin, "Allocate", encode(request))
        if len(decode(AllocateResponse, answer).containers) != 1:
            raise AssertionError(f"Allocate of {resource} answered {answer!r}")
        # The kubelet lists every unit in an entry of its own.
        entries = [ContainerDevices(resource, (each,)) for each in ids]
        self._held.setdefault(pod, {}).setdefault(container, []).extend(entries)
        return ids

    def remove(self, pod: str) -> None:
        """What the pod held is free again."""
        for entries in self._held.pop(pod).values():
            for entry in entries:
                self._plugins[entry.resource].given.difference_update(entry.ids)

    async def pre_start(self, resource: str, ids: tuple[str, ...]) -> float:
        """The seconds that PreStartContainer took."""
        request = encode(PreStartRequest(ids))
        began = time.perf_counter()
        await self._call(self._plugins[resource], "PreStartContainer", request)
        return time.perf_counter() - began

    def _describe(self, pod: str) -> PodResources:
        containers = self._held[pod].items()
        return PodResources(
            pod,
            "default",
            tuple(ContainerResources(name, tuple(all_)) for name, all_ in containers),
        )

    async def _serve(self, path: Path, service: str, handlers: Any) -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        self._servers.append(server)

    async def _register(self, request: bytes, _call: Any) -> bytes:
        asked = decode(RegisterRequest, request)
        address = f"unix:{self.plugins_folder / asked.endpoint}"
        plugin = _Plugin(grpc.aio.insecure_channel(address, options=_OPTIONS))
        await self._call(plugin, "GetDevicePluginOptions", b"")
        self._plugins[asked.resource] = plugin
        plugin.listening = asyncio.create_task(self._listen(plugin))
        return b""

    async def _listen(self, plugin: _Plugin) -> None:
        stream = plugin.channel.unary_stream(f"/{DEVICE_PLUGIN}/ListAndWatch")
        async for message in stream(b"", wait_for_ready=True):
            units = decode(Devices, message).devices
            plugin.units = [unit.id for unit in units if unit.health == HEALTHY]
            plugin.known.set()

    async def _call(self, plugin: _Plugin, verb: str, request: bytes) -> bytes:
        call = plugin.channel.unary_unary(f"/{DEVICE_PLUGIN}/{verb}")
        answer: bytes = await call(request, timeout=30, wait_for_ready=True)
        return answer

    async def _list(self, _request: bytes, _call: Any) -> bytes:
        return encode(ListResponse(tuple(map(self._describe, self._held))))

    async def _get(self, request: bytes, call: Any) -> bytes:
        name = decode(GetRequest, request).name
        if name not in self._held:
            await call.abort(grpc.StatusCode.NOT_FOUND, f"no pod {name}")
        return encode(GetResponse(self._describe(name)))
