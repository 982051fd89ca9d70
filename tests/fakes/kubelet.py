"""A kubelet without containers: registers plugins, picks units, calls them, tells who holds what.

It follows the real one where plugins can tell the difference: it dials back while they register,
gives units out at admission in no order, remembers the answers, and calls PreStartContainer
before every start.
"""

import asyncio
import contextlib
import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio

from slicewise.kubelet.codec import decode, encode
from slicewise.kubelet.podresources import (
    V1,
    AllocatableResponse,
    ContainerDevices,
    ContainerResources,
    GetRequest,
    GetResponse,
    ListResponse,
    PodResources,
)
from slicewise.kubelet.sockets import socket_address
from slicewise.kubelet.v1beta1 import (
    DEVICE_PLUGIN,
    HEALTHY,
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    Devices,
    Options,
    PreStartRequest,
    RegisterRequest,
)
from slicewise.model import Pod, Role, read_count


class AdmissionError(Exception):
    """The pod was rejected for good, as by UnexpectedAdmissionError."""


class StartError(Exception):
    """A container could not start; the kubelet would try again."""


@dataclass
class Known:
    """A registered plugin and the units it told of last."""

    channel: object
    options: Options
    healthy: set[str] = field(default_factory=set)
    sick: set[str] = field(default_factory=set)
    stream: asyncio.Task | None = None


@dataclass
class Held:
    """What one container was given at admission."""

    ids: dict[str, tuple[str, ...]] = field(default_factory=dict)
    answers: dict[str, object] = field(default_factory=dict)
    role: Role = Role.MAIN


class FakeKubelet:
    """One kubelet over real sockets; start it with `async with`."""

    def __init__(self, root: Path, *, seed: int = 0, speaks: str = V1) -> None:
        self.plugins = root / "device-plugins"
        self.pod_resources = root / "pod-resources" / "kubelet.sock"
        self.known: dict[str, Known] = {}
        self.registrations: list[str] = []
        self.pods: dict[tuple[str, str], dict[str, Held]] = {}
        self.lists = 0
        self.gets = 0
        self.can_get = True
        self._chance = random.Random(seed)
        self._speaks = speaks
        self._changed = asyncio.Event()
        self._servers = []
        self.plugins.mkdir(parents=True)
        self.pod_resources.parent.mkdir(parents=True)

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_):
        await self.stop()

    async def start(self) -> None:
        for path in self.plugins.iterdir():
            if path.is_socket():
                path.unlink()
        unary = grpc.unary_unary_rpc_method_handler
        registry = {"Register": unary(self._register)}
        lister = {"List": unary(self._list)}
        if self._speaks == V1:
            lister["Get"] = unary(self._get)
            lister["GetAllocatableResources"] = unary(self._allocatable)
        for path, service, handlers in (
            (self.plugins / "kubelet.sock", "v1beta1.Registration", registry),
            (self.pod_resources, self._speaks, lister),
        ):
            server = grpc.aio.server()
            handler = grpc.method_handlers_generic_handler(service, handlers)
            server.add_generic_rpc_handlers((handler,))
            server.add_insecure_port(socket_address(path))
            await server.start()
            self._servers.append(server)

    async def stop(self) -> None:
        for known in self.known.values():
            known.stream.cancel()
            await asyncio.gather(known.stream, return_exceptions=True)
            await known.channel.close()
        self.known.clear()
        for server in self._servers:
            await server.stop(None)
        self._servers.clear()

    async def restart(self) -> None:
        """As a real restart: plugins are forgotten, what pods hold is not."""
        await self.stop()
        await self.start()

    async def until(self, reached, seconds: float = 20) -> None:
        """Return once this is so of what plugins told."""
        async with asyncio.timeout(seconds):
            while not reached():
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), 0.05)

    async def until_known(self, *resources: str) -> None:
        await self.until(
            lambda: all(name in self.known and self.known[name].healthy for name in resources)
        )

    def allocatable(self, resource: str) -> int:
        return len(self.known[resource].healthy) if resource in self.known else 0

    async def admit(self, pod: Pod) -> dict[str, Held]:
        """Every container's units and answers; all is given back when one is refused."""
        # The real one lists every container of the pod from the moment it looks at it.
        held = {each.name: Held(role=each.role) for each in pod.containers}
        self.pods[pod.namespace, pod.name] = held
        reusable: dict[str, list[str]] = {}
        try:
            for container in pod.containers:
                mine = held[container.name]
                wanted = [(r, read_count(r, q)) for r, q in container.limits.items()]
                self._chance.shuffle(wanted)
                for resource, count in wanted:
                    if resource in self.known and count:
                        await self._allocate(mine, resource, count, reusable)
                if container.role is Role.INIT:
                    for resource, ids in mine.ids.items():
                        reusable.setdefault(resource, []).extend(ids)
        except AdmissionError:
            del self.pods[pod.namespace, pod.name]
            raise
        return held

    async def start_container(self, pod: Pod, name: str) -> Held:
        """The container is about to be created."""
        held = self.pods[pod.namespace, pod.name][name]
        for resource, ids in held.ids.items():
            known = self.known[resource]
            if known.options.pre_start_required:
                call = known.channel.unary_unary(f"/{DEVICE_PLUGIN}/PreStartContainer")
                try:
                    await call(encode(PreStartRequest(ids)), timeout=30)
                except grpc.RpcError as error:
                    raise StartError(error.details()) from error
        return held

    def remove(self, pod: Pod) -> None:
        """The pod has ended."""
        self.pods.pop((pod.namespace, pod.name), None)

    def write_checkpoint(self, pod: Pod) -> None:
        """The note in which the real kubelet keeps who holds what, init containers included."""
        entries = [
            {
                "PodUID": pod.uid,
                "ContainerName": name,
                "ResourceName": resource,
                "DeviceIDs": {"-1": list(ids)},
            }
            for name, held in self.pods[pod.namespace, pod.name].items()
            for resource, ids in held.ids.items()
        ]
        note = {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1}
        (self.plugins / "kubelet_internal_checkpoint").write_text(json.dumps(note))

    async def _allocate(self, mine: Held, resource: str, count: int, reusable) -> None:
        known = self.known[resource]
        used = {
            unit
            for containers in self.pods.values()
            for held in containers.values()
            for unit in held.ids.get(resource, ())
        }
        ids = reusable.get(resource, [])[:count]
        reusable[resource] = reusable.get(resource, [])[count:]
        free = sorted(known.healthy - used)
        if len(free) < count - len(ids):
            raise AdmissionError(f"{resource}: {count} asked for, {len(free)} free")
        ids += self._chance.sample(free, count - len(ids))
        request = AllocateRequest((ContainerAllocateRequest(tuple(ids)),))
        call = known.channel.unary_unary(f"/{DEVICE_PLUGIN}/Allocate")
        try:
            answer = decode(AllocateResponse, await call(encode(request), timeout=30))
        except grpc.RpcError as error:
            raise AdmissionError(error.details()) from error
        (mine.answers[resource],) = answer.containers
        mine.ids[resource] = tuple(ids)

    async def _register(self, request: bytes, call) -> bytes:
        asked = decode(RegisterRequest, request)
        path = self.plugins / asked.endpoint
        channel = grpc.aio.insecure_channel(
            socket_address(path), options=(("grpc.max_receive_message_length", 4 << 20),)
        )
        options = channel.unary_unary(f"/{DEVICE_PLUGIN}/GetDevicePluginOptions")
        answer = await options(b"", timeout=10)
        before = self.known.pop(asked.resource, None)
        if before is not None:
            before.stream.cancel()
            await before.channel.close()
        known = self.known[asked.resource] = Known(channel, decode(Options, answer))
        known.stream = asyncio.ensure_future(self._follow(known))
        self.registrations.append(asked.resource)
        self._changed.set()
        return b""

    async def _follow(self, known: Known) -> None:
        stream = known.channel.unary_stream(f"/{DEVICE_PLUGIN}/ListAndWatch")(b"")
        try:
            async for message in stream:
                devices = decode(Devices, message).devices
                known.healthy = {each.id for each in devices if each.health == HEALTHY}
                known.sick = {each.id for each in devices if each.health != HEALTHY}
                self._changed.set()
        except grpc.RpcError:
            pass
        known.sick |= known.healthy
        known.healthy = set()
        self._changed.set()

    async def _list(self, _request: bytes, _call) -> bytes:
        self.lists += 1
        return encode(ListResponse(tuple(map(self._tell, self.pods))))

    async def _get(self, request: bytes, call) -> bytes:
        self.gets += 1
        asked = decode(GetRequest, request)
        key = asked.namespace, asked.name
        if not self.can_get:
            await call.abort(grpc.StatusCode.UNIMPLEMENTED, "Get is switched off")
        if key not in self.pods:
            await call.abort(grpc.StatusCode.NOT_FOUND, "no such pod")
        return encode(GetResponse(self._tell(key)))

    async def _allocatable(self, _request: bytes, _call) -> bytes:
        devices = tuple(
            ContainerDevices(resource, (unit,))
            for resource, known in self.known.items()
            for unit in sorted(known.healthy)
        )
        return encode(AllocatableResponse(devices))

    def _tell(self, key: tuple[str, str]) -> PodResources:
        containers = tuple(
            ContainerResources(
                name,
                # The real one lists every unit by itself.
                tuple(
                    ContainerDevices(resource, (unit,))
                    for resource, ids in held.ids.items()
                    for unit in ids
                ),
            )
            for name, held in self.pods[key].items()
            if held.role is not Role.INIT
        )
        return PodResources(key[1], key[0], containers)
