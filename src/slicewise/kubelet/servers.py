"""Starts gRPC servers on Unix sockets, so that one that failed half-way leaves nothing running."""

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc

from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.sockets import socket_address


async def start_server(
    path: Path,
    services: Mapping[str, Mapping[str, Any]],
    *,
    mode: int = 0o600,
    **settings: Any,
) -> Any:
    """A server that answers these services' methods on a fresh socket, for whom the mode allows."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    server = grpc.aio.server(**settings)
    server.add_generic_rpc_handlers(
        tuple(
            grpc.method_handlers_generic_handler(name, dict(methods))
            for name, methods in services.items()
        )
    )
    try:
        server.add_insecure_port(socket_address(path))
        await _start_whole(server)
        # Whoever removed the socket meanwhile is noticed by its absence.
        with contextlib.suppress(FileNotFoundError):
            os.chmod(path, mode)
    except (RuntimeError, OSError) as error:
        await server.stop(None)
        raise KubeletError(f"cannot listen on {path}: {error}") from error
    except asyncio.CancelledError:
        await server.stop(None)
        raise
    return server


async def _start_whole(server: Any) -> None:
    """Start it and be cancelled afterwards: gRPC cannot leave a start half-way."""
    starting = asyncio.ensure_future(server.start())
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await starting
        raise
