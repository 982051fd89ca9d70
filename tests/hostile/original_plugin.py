"""A device plugin as the original systems had it: it gives GPUs when pods are admitted.

It is told which GPU the next container gets, since how each original chose is not the point. The
few messages of the device plugin API are put together by hand.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import grpc

from e2e.device_plugin import fields
from e2e.recorded_gpus import Gpu

_SOCKET = "original.sock"


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field."""
    size, prefix = len(payload), bytearray()
    while size > 0x7F:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((number << 3 | 2, *prefix, size)) + payload


class OriginalPlugin:
    """Offers units of one resource to one real node, until closed."""

    def __init__(self, plugins: Path, dev: Path, resource: str, units: int) -> None:
        self.next: deque[Gpu] = deque()
        """The GPUs of the next containers, in their order."""
        self._plugins, self._dev, self._resource, self._units = plugins, dev, resource, units
        self._closed = Event()
        self._server = grpc.server(ThreadPoolExecutor(4))
        unary = grpc.unary_unary_rpc_method_handler
        handlers = {
            "GetDevicePluginOptions": unary(lambda _request, _call: b""),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list),
            "Allocate": unary(self._allocate),
        }
        service = grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers)
        self._server.add_generic_rpc_handlers((service,))

    def register(self) -> None:
        """The kubelet knows the plugin."""
        self._server.add_insecure_port(f"unix:{self._plugins / _SOCKET}")
        self._server.start()
        name = self._resource.encode()
        request = field(1, b"v1beta1") + field(2, _SOCKET.encode()) + field(3, name)
        with grpc.insecure_channel(f"unix:{self._plugins / 'kubelet.sock'}") as channel:
            channel.unary_unary("/v1beta1.Registration/Register")(request, timeout=15)

    def close(self) -> None:
        """The plugin is gone."""
        self._closed.set()
        self._server.stop(grace=None).wait()

    def _list(self, _request: bytes, _call: grpc.ServicerContext) -> Iterator[bytes]:
        ids = (name.encode() for name in self._ids())
        yield b"".join(field(1, field(1, name) + field(2, b"Healthy")) for name in ids)
        self._closed.wait()

    def _ids(self) -> Iterable[str]:
        return (f"unit-{number}" for number in range(self._units))

    def _choose(self, _request: bytes) -> Gpu:
        return self.next.popleft()

    def _allocate(self, request: bytes, _call: grpc.ServicerContext) -> bytes:
        gpu = self._choose(request)
        variable = field(1, b"NVIDIA_VISIBLE_DEVICES") + field(2, gpu.uuid.encode())
        inside, outside = f"/dev/{gpu.device}", str(self._dev / gpu.device)
        device = field(1, inside.encode()) + field(2, outside.encode()) + field(3, b"rw")
        return field(1, field(1, variable) + field(3, device))


class NvidiaPlugin(OriginalPlugin):
    """NVIDIA's own: every GPU is one unit, which has the GPU's UUID for its name."""

    def __init__(self, plugins: Path, dev: Path, gpus: Sequence[Gpu]) -> None:
        super().__init__(plugins, dev, "nvidia.com/gpu", len(gpus))
        self._gpus = {gpu.uuid: gpu for gpu in gpus}

    def _ids(self) -> Iterable[str]:
        return self._gpus

    def _choose(self, request: bytes) -> Gpu:
        """The GPU whose unit the kubelet has picked."""
        (container,) = fields(request)
        (unit,) = fields(container)
        return self._gpus[unit.decode()]
