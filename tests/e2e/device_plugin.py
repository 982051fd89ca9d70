"""A device plugin that names a CDI device at admission and describes it only before the start.

The few messages of the device plugin API are put together by hand, so no generated code is needed.
"""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import grpc

RESOURCE = "testbed.slicewise.dev/late"
_KIND = "testbed.slicewise.dev/device"
_SOCKET = "late.sock"


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field; payloads here are shorter than 128 bytes."""
    return bytes((number << 3 | 2, len(payload))) + payload


def fields(message: bytes) -> Iterator[bytes]:
    """The payloads of a message that has length-delimited fields alone."""
    while message:
        end = 2 + message[1]
        yield message[2:end]
        message = message[end:]


class LatePlugin:
    """Offers devices to one real node, until closed."""

    def __init__(self, plugins: Path, cdi: Path, devices: int) -> None:
        self.seen_at_admission: list[list[str]] = []
        self._plugins = plugins
        self._cdi = cdi
        self._devices = devices
        self._closed = Event()
        self._server = grpc.server(ThreadPoolExecutor(4))
        unary = grpc.unary_unary_rpc_method_handler
        handlers = {
            "GetDevicePluginOptions": unary(lambda _request, _call: bytes((1 << 3, 1))),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list),
            "Allocate": unary(self._allocate),
            "PreStartContainer": unary(self._pre_start),
        }
        service = grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers)
        self._server.add_generic_rpc_handlers((service,))

    def register(self) -> None:
        """The kubelet knows the plugin."""
        self._server.add_insecure_port(f"unix:{self._plugins / _SOCKET}")
        self._server.start()
        request = field(1, b"v1beta1") + field(2, _SOCKET.encode()) + field(3, RESOURCE.encode())
        with grpc.insecure_channel(f"unix:{self._plugins / 'kubelet.sock'}") as channel:
            channel.unary_unary("/v1beta1.Registration/Register")(request, timeout=15)

    def close(self) -> None:
        """The plugin is gone."""
        self._closed.set()
        self._server.stop(grace=None).wait()

    def _list(self, _request: bytes, _call: grpc.ServicerContext) -> Iterator[bytes]:
        ids = (f"late-{number}".encode() for number in range(self._devices))
        yield b"".join(field(1, field(1, name) + field(2, b"Healthy")) for name in ids)
        self._closed.wait()

    def _allocate(self, request: bytes, _call: grpc.ServicerContext) -> bytes:
        self.seen_at_admission.append(sorted(path.name for path in self._cdi.iterdir()))
        (container,) = fields(request)
        (device,) = fields(container)
        name = field(1, f"{_KIND}={device.decode()}".encode())
        return field(1, field(5, name))

    def _pre_start(self, request: bytes, _call: grpc.ServicerContext) -> bytes:
        (device,) = (name.decode() for name in fields(request))
        edits = {"env": [f"LATE=decided-for-{device}"]}
        spec = {"cdiVersion": "0.6.0", "kind": _KIND}
        spec["devices"] = [{"name": device, "containerEdits": edits}]
        # The runtime may look at any moment, so the file appears whole or not at all.
        scratch = self._cdi / f".{device}.tmp"
        scratch.write_text(json.dumps(spec))
        os.replace(scratch, self._cdi / f"{device}.json")
        return b""
