import asyncio
import contextlib
import gc
import socket

import grpc
import pytest

from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.servers import start_server


async def echo(request, _call):
    return request


SERVICES = {"test.Echo": {"Say": grpc.unary_unary_rpc_method_handler(echo)}}


def answers(path):
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as found:
        return found.connect_ex(str(path)) == 0


def test_socket_is_for_whom_the_mode_allows(tmp_path):
    path = tmp_path / "echo.sock"

    async def scene():
        server = await start_server(path, SERVICES)
        mode = path.stat().st_mode & 0o777
        await server.stop(None)
        return mode

    assert asyncio.run(scene()) == 0o600


@pytest.mark.parametrize("turns", range(6))
def test_server_whose_start_is_cancelled_answers_nobody(tmp_path, turns):
    path = tmp_path / "echo.sock"

    async def scene():
        starting = asyncio.create_task(start_server(path, SERVICES))
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await starting).stop(None)

    asyncio.run(scene())
    # A server that is left running complains when it is collected.
    gc.collect()

    assert not answers(path)


def test_path_that_cannot_be_listened_on_is_named(tmp_path):
    path = tmp_path / "missing" / "echo.sock"

    with pytest.raises(KubeletError, match="missing/echo"):
        asyncio.run(start_server(path, SERVICES))
