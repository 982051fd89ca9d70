import asyncio
import contextlib

import grpc.aio

from slicewise.kubelet import dra_messages as wire
from slicewise.kubelet.codec import decode, encode
from slicewise.kubelet.dra_messages import ClaimRef, DeviceHealth, DeviceIdentifier, PreparedDevice
from slicewise.kubelet.dra_plugin import DraFolders, DraPlugin
from slicewise.kubelet.errors import DeniedError
from slicewise.kubelet.sockets import socket_address

DRIVER = "gpu.example.com"
PREPARED = PreparedDevice(("gpu",), "n0", "gpu-0", ("example.com/claim=u1-gpu",), "s1")


class FakeClaims:
    def __init__(self):
        self.gone = []

    async def prepare(self, ref):
        if ref.name == "refused":
            raise DeniedError("no room")
        return (PREPARED,)

    async def unprepare(self, ref):
        self.gone.append(ref.uid)


class FakeKubelet:
    """Calls a plugin as a kubelet does that found its registration socket."""

    def __init__(self, plugin):
        self.plugin = plugin

    async def call(self, path, method, request=b""):
        async with grpc.aio.insecure_channel(socket_address(path)) as channel:
            return await channel.unary_unary(method)(request, timeout=10)

    async def find(self):
        answer = await self.call(self.plugin.registration, f"/{wire.REGISTRATION}/GetInfo")
        return decode(wire.PluginInfo, answer)

    async def tell(self, **status):
        request = encode(wire.RegistrationStatus(**status))
        method = f"/{wire.REGISTRATION}/NotifyRegistrationStatus"
        await self.call(self.plugin.registration, method, request)

    async def prepare(self, *refs, service=wire.DRA_V1):
        method = f"/{service}/NodePrepareResources"
        request = encode(wire.ClaimsRequest(refs))
        return decode(wire.PrepareResponses, await self.call(self.plugin.endpoint, method, request))

    async def unprepare(self, *refs):
        method = f"/{wire.DRA_V1}/NodeUnprepareResources"
        request = encode(wire.ClaimsRequest(refs))
        answer = await self.call(self.plugin.endpoint, method, request)
        return decode(wire.UnprepareResponses, answer)


@contextlib.asynccontextmanager
async def serving(folder, handler=None, health=tuple):
    folders = DraFolders(folder / "registry", folder / "plugins")
    plugin = DraPlugin(DRIVER, folders, handler or FakeClaims(), health)
    await plugin.start()
    try:
        yield plugin, FakeKubelet(plugin)
    finally:
        await plugin.stop()


def test_kubelet_finds_the_driver_by_its_registration_socket(tmp_path):
    async def scene():
        async with serving(tmp_path) as (plugin, kubelet):
            heard = []
            plugin.on_registered = lambda: heard.append(True)
            found = await kubelet.find()
            await kubelet.tell(registered=True)
            return found, plugin.registered, heard

    found, registered, heard = asyncio.run(scene())

    assert (found.type, found.name) == ("DRAPlugin", DRIVER)
    assert found.endpoint == str(tmp_path / "plugins" / DRIVER / "dra.sock")
    assert found.versions[0] == "v1.DRAPlugin"
    assert registered
    assert heard == [True]


def test_every_claim_is_answered_whether_prepared_or_refused(tmp_path):
    async def scene():
        async with serving(tmp_path) as (_, kubelet):
            refs = (ClaimRef("ml", "u1", "good"), ClaimRef("ml", "u2", "refused"))
            return await kubelet.prepare(*refs, service=wire.DRA_V1BETA1)

    claims = asyncio.run(scene()).claims

    assert claims["u1"] == wire.PrepareResponse((PREPARED,))
    assert claims["u2"] == wire.PrepareResponse(error="slicewise: no room")


def test_unprepared_claims_are_answered_by_uid(tmp_path):
    handler = FakeClaims()

    async def scene():
        async with serving(tmp_path, handler) as (_, kubelet):
            return await kubelet.unprepare(ClaimRef("ml", "u1", "c1"))

    assert asyncio.run(scene()).claims == {"u1": wire.UnprepareResponse()}
    assert handler.gone == ["u1"]


def test_health_is_sent_at_once_and_again_when_it_changed(tmp_path):
    states = [wire.HEALTHY]

    def health():
        return (DeviceHealth(DeviceIdentifier("n0", "gpu-0"), states[-1], 17),)

    async def scene():
        async with serving(tmp_path, health=health) as (plugin, _):
            address = socket_address(plugin.endpoint)
            async with grpc.aio.insecure_channel(address) as channel:
                stream = channel.unary_stream(f"/{wire.HEALTH}/NodeWatchResources")(b"")
                first = decode(wire.HealthResponse, await stream.read())
                states.append(wire.UNHEALTHY)
                plugin.health_changed()
                return first, decode(wire.HealthResponse, await stream.read())

    first, second = asyncio.run(asyncio.wait_for(scene(), 30))

    assert [each.health for each in (*first.devices, *second.devices)] == [1, 2]


def test_removed_socket_is_noticed_and_stopping_leaves_none(tmp_path):
    async def scene():
        async with serving(tmp_path) as (plugin, _):
            before = plugin.listening
            plugin.registration.unlink()
            return plugin, before, plugin.listening

    plugin, before, after = asyncio.run(scene())

    assert (before, after) == (True, False)
    assert not plugin.endpoint.exists()
