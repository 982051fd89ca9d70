import asyncio
import contextlib
import stat

import pytest

import builders
from fakes.kubelet import AdmissionError, FakeKubelet, StartError
from slicewise.kubelet.errors import DeniedError
from slicewise.kubelet.plugin import DevicePlugin, PluginOffer
from slicewise.kubelet.registrar import Registrar
from slicewise.kubelet.v1beta1 import CdiDevice, ContainerAllocateResponse, Unit

RESOURCE = "example.com/share"


class FakeHandler:
    """Names what it was asked, and refuses when told to."""

    def __init__(self):
        self.started = []
        self.refusal = None

    async def allocate(self, ids):
        self._refuse()
        return ContainerAllocateResponse(cdi_devices=(CdiDevice("+".join(sorted(ids))),))

    async def pre_start(self, ids):
        self._refuse()
        self.started.append(frozenset(ids))

    def _refuse(self):
        if self.refusal is not None:
            raise self.refusal


@contextlib.asynccontextmanager
async def living(kubelet, handler=None, count=4, socket="share.sock"):
    """A registered plugin of so many units."""
    plugin = DevicePlugin(kubelet.plugins, PluginOffer(RESOURCE, socket), handler or FakeHandler())
    plugin.publish("well", lambda: [Unit(f"u{at}") for at in range(count)])
    registrar = Registrar(kubelet.plugins, [plugin], every=0.01)
    running = asyncio.create_task(registrar.run())
    try:
        await kubelet.until_known(RESOURCE)
        yield plugin
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def asks(count, name="p0"):
    return builders.pod(name=name, limits={RESOURCE: str(count)})


def run(scene):
    return asyncio.run(asyncio.wait_for(scene, 60))


def test_registered_plugin_offers_its_units(tmp_path):
    async def scene():
        async with FakeKubelet(tmp_path) as kubelet, living(kubelet):
            return kubelet.allocatable(RESOURCE), kubelet.known[RESOURCE].options

    allocatable, options = run(scene())

    assert allocatable == 4
    assert options.pre_start_required
    assert not options.preferred_allocation


def test_units_given_at_admission_are_named_again_before_the_start(tmp_path):
    handler = FakeHandler()

    async def scene():
        async with FakeKubelet(tmp_path) as kubelet, living(kubelet, handler):
            held = await kubelet.admit(asks(2))
            await kubelet.start_container(asks(2), "c0")
            return held["c0"]

    held = run(scene())

    assert handler.started == [frozenset(held.ids[RESOURCE])]
    assert held.answers[RESOURCE].cdi_devices[0].name == "+".join(sorted(held.ids[RESOURCE]))


def test_plugin_registers_again_when_the_kubelet_starts_again(tmp_path):
    async def scene():
        async with FakeKubelet(tmp_path) as kubelet, living(kubelet):
            await kubelet.restart()
            await kubelet.until_known(RESOURCE)
            return kubelet.registrations

    assert run(scene()) == [RESOURCE, RESOURCE]


def test_plugin_registers_again_when_its_socket_was_removed(tmp_path):
    async def scene():
        async with FakeKubelet(tmp_path) as kubelet, living(kubelet) as plugin:
            plugin.path.unlink()
            await kubelet.until(lambda: len(kubelet.registrations) == 2)
            await kubelet.until_known(RESOURCE)
            return plugin.listening

    assert run(scene())


def test_plugin_waits_for_a_kubelet_that_is_not_there_yet(tmp_path):
    kubelet = FakeKubelet(tmp_path)

    async def scene():
        plugin = DevicePlugin(kubelet.plugins, PluginOffer(RESOURCE, "share.sock"), FakeHandler())
        plugin.publish("well", lambda: [Unit("u0")])
        registrar = Registrar(kubelet.plugins, [plugin])
        await registrar.look()
        early = registrar.ready
        async with kubelet:
            await registrar.look()
            late = registrar.ready
            await plugin.stop()
        return early, late

    assert run(scene()) == (False, True)


def test_change_of_health_reaches_the_kubelet_on_the_open_stream(tmp_path):
    async def scene():
        async with FakeKubelet(tmp_path) as kubelet, living(kubelet) as plugin:
            plugin.publish(
                "unhealthy", lambda: [Unit(f"u{at}", healthy=at != 1) for at in range(4)]
            )
            await kubelet.until(lambda: kubelet.known[RESOURCE].sick == {"u1"})
            return kubelet.registrations, kubelet.allocatable(RESOURCE)

    assert run(scene()) == ([RESOURCE], 3)


def test_socket_is_for_root_alone(tmp_path):
    async def scenario():
        async with FakeKubelet(tmp_path) as kubelet, living(kubelet) as plugin:
            return stat.S_IMODE(plugin.path.stat().st_mode)

    assert run(scenario()) == 0o600


def test_stopped_plugin_leaves_no_socket_and_no_healthy_unit(tmp_path):
    async def scene():
        async with FakeKubelet(tmp_path) as kubelet:
            async with living(kubelet) as plugin:
                path = plugin.path
            await kubelet.until(lambda: kubelet.allocatable(RESOURCE) == 0)
            return path.exists()

    assert run(scene()) is False


def test_reason_of_a_refusal_reaches_the_kubelet(tmp_path):
    handler = FakeHandler()

    async def scene():
        async with FakeKubelet(tmp_path) as kubelet, living(kubelet, handler):
            await kubelet.admit(asks(1))
            handler.refusal = DeniedError("no record of pod default/p0 yet")
            await kubelet.start_container(asks(1), "c0")

    with pytest.raises(StartError, match="no record of pod default/p0 yet"):
        run(scene())


def test_broken_handler_is_an_error_without_its_insides(tmp_path, caplog):
    handler = FakeHandler()
    handler.refusal = ZeroDivisionError("secret")

    async def scene():
        async with FakeKubelet(tmp_path) as kubelet, living(kubelet, handler):
            await kubelet.admit(asks(1))

    with pytest.raises(AdmissionError, match="see the agent's log") as refused:
        run(scene())

    assert "secret" not in str(refused.value)
    assert "call failed verb=Allocate" in caplog.text


def test_socket_below_a_very_long_folder_is_served(tmp_path):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()

    async def scene():
        async with FakeKubelet(deep) as kubelet, living(kubelet) as plugin:
            return len(str(plugin.path)), kubelet.allocatable(RESOURCE)

    length, allocatable = run(scene())

    assert length > 107
    assert allocatable == 4
