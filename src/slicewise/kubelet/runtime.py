"""Asks the container runtime for its version, for CDI support, and for the state of containers.

Only the few messages of its interface that say so are known here.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from slicewise.kubelet.codec import decode, encode, many, number, one, pairs, text, truth
from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.plugin import describe
from slicewise.kubelet.sockets import socket_address

_SERVICE: Final = "runtime.v1.RuntimeService"
_OLD_SERVICE: Final = "runtime.v1alpha2.RuntimeService"
_UID_LABEL: Final = "io.kubernetes.pod.uid"
_NAME_LABEL: Final = "io.kubernetes.container.name"
_CREATED: Final = 0
_RUNNING: Final = 1
_EXITED: Final = 2
_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_GPU_NODE: Final = re.compile(r".*/nvidia([0-9]+)")
_VERSION: Final = re.compile(r"v?([0-9]+)\.([0-9]+)")
_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class _VersionRequest:
    version: str = text(1)


@dataclass(frozen=True, slots=True)
class _VersionResponse:
    name: str = text(2)
    version: str = text(3)


@dataclass(frozen=True, slots=True)
class _StatusRequest:
    verbose: bool = truth(1)


@dataclass(frozen=True, slots=True)
class _StatusResponse:
    info: Mapping[str, str] = pairs(2)


@dataclass(frozen=True, slots=True)
class _SandboxFilter:
    labels: Mapping[str, str] = pairs(3)


@dataclass(frozen=True, slots=True)
class _SandboxRequest:
    filter: _SandboxFilter | None = one(1, _SandboxFilter)


@dataclass(frozen=True, slots=True)
class _Sandbox:
    id: str = text(1)
    state: int = number(3)
    created: int = number(4)


@dataclass(frozen=True, slots=True)
class _SandboxResponse:
    items: tuple[_Sandbox, ...] = many(1, _Sandbox)


@dataclass(frozen=True, slots=True)
class _ContainerFilter:
    sandbox: str = text(3)
    labels: Mapping[str, str] = pairs(4)


@dataclass(frozen=True, slots=True)
class _ContainerRequest:
    filter: _ContainerFilter | None = one(1, _ContainerFilter)


@dataclass(frozen=True, slots=True)
class _Container:
    id: str = text(1)
    state: int = number(6)
    labels: Mapping[str, str] = pairs(8)


@dataclass(frozen=True, slots=True)
class _ContainerResponse:
    containers: tuple[_Container, ...] = many(1, _Container)


@dataclass(frozen=True, slots=True)
class _ContainerStatusRequest:
    id: str = text(1)
    verbose: bool = truth(2)


@dataclass(frozen=True, slots=True)
class _ContainerStatus:
    id: str = text(1)
    exit_code: int = number(7)
    labels: Mapping[str, str] = pairs(12)


@dataclass(frozen=True, slots=True)
class _ContainerStatusResponse:
    status: _ContainerStatus | None = one(1, _ContainerStatus)
    info: Mapping[str, str] = pairs(2)


@dataclass(frozen=True, slots=True)
class RuntimeVersion:
    """A container runtime, and whether it supports CDI."""

    name: str
    version: str
    cdi: bool

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True, slots=True)
class GivenDevices:
    """What a running container was given of GPUs: what its environment names, and minor numbers."""

    visible: str | None = None
    minors: tuple[int, ...] = ()


class RuntimeClient:
    def __init__(self, path: Path, *, seconds: float = _SECONDS) -> None:
        self._path = path
        self._seconds = seconds
        self._channel: Any = None
        self._service = _SERVICE

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def identify(self) -> RuntimeVersion:
        """Name and version of the runtime, and whether it supports CDI."""
        told = decode(_VersionResponse, await self._call("Version", _VersionRequest("0.1.0")))
        status = decode(_StatusResponse, await self._call("Status", _StatusRequest(True)))
        return RuntimeVersion(
            told.name,
            told.version,
            supports_cdi(told.name, told.version, _read_switch(status.info)),
        )

    async def finished(self, uid: str) -> frozenset[str] | None:
        """The containers that exited with 0 in the pod's present sandbox; None when unknown."""
        try:
            asked = _SandboxRequest(_SandboxFilter({_UID_LABEL: uid}))
            boxes = decode(_SandboxResponse, await self._call("ListPodSandbox", asked)).items
            if not boxes:
                return None
            newest = max(boxes, key=lambda box: box.created)
            wanted = _ContainerRequest(_ContainerFilter(newest.id))
            listed = decode(_ContainerResponse, await self._call("ListContainers", wanted))
            return frozenset(
                [
                    each.labels.get(_NAME_LABEL, "")
                    for each in listed.containers
                    if each.state == _EXITED and await self._exit_code(each.id) == 0
                ]
            )
        except KubeletError:
            return None

    async def running(self, uid: str) -> frozenset[str] | None:
        """The pod's containers that run or are about to, whatever the API server says.

        None when unknown.
        """
        try:
            asked = _ContainerRequest(_ContainerFilter(labels={_UID_LABEL: uid}))
            listed = decode(_ContainerResponse, await self._call("ListContainers", asked))
        except KubeletError:
            return None
        return frozenset(
            each.labels.get(_NAME_LABEL, "")
            for each in listed.containers
            if each.state in (_CREATED, _RUNNING) and each.labels.get(_UID_LABEL) == uid
        )

    async def find_container(self, identity: str) -> tuple[str, str] | None:
        """The pod's UID and the container's name; None when the runtime does not know the id."""
        try:
            data = await self._call("ContainerStatus", _ContainerStatusRequest(identity))
        except KubeletError:
            return None
        status = decode(_ContainerStatusResponse, data).status
        # The runtime completes a shortened id, which must not name somebody else's folder.
        if status is None or status.id != identity:
            return None
        return status.labels.get(_UID_LABEL, ""), status.labels.get(_NAME_LABEL, "")

    async def given_devices(self, identity: str) -> GivenDevices | None:
        """The GPUs in a container's own specification; None when the runtime does not tell."""
        try:
            asked = _ContainerStatusRequest(identity, verbose=True)
            told = decode(_ContainerStatusResponse, await self._call("ContainerStatus", asked))
        except KubeletError:
            return None
        if told.status is None or told.status.id != identity:
            return None
        return read_devices(told.info.get("info", ""))

    async def _exit_code(self, identity: str) -> int:
        asked = _ContainerStatusRequest(identity)
        told = decode(_ContainerStatusResponse, await self._call("ContainerStatus", asked))
        return -1 if told.status is None else told.status.exit_code

    async def _call(self, method: str, request: Any) -> bytes:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(
                socket_address(self._path), options=(("grpc.max_receive_message_length", 16 << 20),)
            )
        try:
            call = self._channel.unary_unary(f"/{self._service}/{method}")
            data: bytes = await call(encode(request), timeout=self._seconds, wait_for_ready=True)
        except grpc.RpcError as error:
            unknown = error.code() is grpc.StatusCode.UNIMPLEMENTED
            if unknown and self._service == _SERVICE:
                self._service = _OLD_SERVICE
                return await self._call(method, request)
            raise KubeletError(f"container runtime {self._path}: {describe(error)}") from error
        return data


def supports_cdi(name: str, version: str, switch: bool | None) -> bool:
    """Whether a runtime injects CDI devices that the kubelet names; `switch` is its own setting."""
    form = _VERSION.match(version)
    numbers = (int(form[1]), int(form[2])) if form else (0, 0)
    if name == "containerd":
        # Version 1.7 has it switched off unless told, and older ones do not have it.
        return numbers >= (1, 7) and (numbers >= (2, 0) if switch is None else switch)
    return name == "cri-o" and numbers >= (1, 23)


def read_devices(info: str) -> GivenDevices | None:
    """The GPUs in what containerd and cri-o tell of a container; None when they are not in it."""
    try:
        spec = json.loads(info)["runtimeSpec"]
        env = [each for each in spec["process"].get("env") or () if isinstance(each, str)]
        devices = (spec.get("linux") or {}).get("devices") or ()
        paths = [str(each["path"]) for each in devices]
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    # Of a variable that is set twice, the last counts.
    visible = {each.partition("=")[0]: each.partition("=")[2] for each in env}.get(_VISIBLE)
    minors = {int(found[1]) for path in paths if (found := _GPU_NODE.fullmatch(path))}
    return GivenDevices(visible, tuple(sorted(minors)))


def _read_switch(info: Mapping[str, str]) -> bool | None:
    try:
        config = json.loads(info.get("config", "{}"))
    except ValueError:
        return None
    switch = config.get("enableCDI") if isinstance(config, dict) else None
    return switch if isinstance(switch, bool) else None
