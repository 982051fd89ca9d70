import asyncio
import time

from fakes.kubelet import FakeKubelet
from slicewise.kubelet.inotify import InotifyWatch
from slicewise.kubelet.plugin import DevicePlugin, PluginOffer
from slicewise.kubelet.registrar import Registrar
from slicewise.kubelet.v1beta1 import Unit

LONG = 60.0


def test_wait_ends_when_the_named_file_is_made_and_for_no_other(tmp_path):
    async def scenario():
        with InotifyWatch(tmp_path / "kubelet.sock") as arrivals:
            waiting = asyncio.create_task(arrivals.wait(LONG))
            await asyncio.sleep(0)
            (tmp_path / "vcore.sock").touch()
            done, _ = await asyncio.wait({waiting}, timeout=0.1)
            assert not done
            (tmp_path / "kubelet.sock").touch()
            await asyncio.wait_for(waiting, 10)

    asyncio.run(scenario())


def test_folder_that_is_made_later_is_watched_from_the_next_wait_on(tmp_path):
    async def scenario():
        folder = tmp_path / "device-plugins"
        with InotifyWatch(folder / "kubelet.sock") as arrivals:
            folder.mkdir()
            await arrivals.wait(0.01)
            waiting = asyncio.create_task(arrivals.wait(LONG))
            await asyncio.sleep(0)
            (folder / "kubelet.sock").touch()
            await asyncio.wait_for(waiting, 10)

    asyncio.run(scenario())


def test_wait_ends_for_anything_in_a_folder_that_is_followed(tmp_path):
    async def scenario():
        with InotifyWatch() as arrivals:
            arrivals.follow(tmp_path)
            waiting = asyncio.create_task(arrivals.wait(LONG))
            await asyncio.sleep(0)
            (tmp_path / "any").mkdir()
            await asyncio.wait_for(waiting, 10)

    asyncio.run(scenario())


def test_restarted_kubelet_knows_its_plugins_again_long_before_the_next_look(tmp_path):
    async def scenario():
        async with FakeKubelet(tmp_path) as kubelet:
            plugin = DevicePlugin(kubelet.plugins, PluginOffer("example.com/gpu", "gpu.sock"), None)
            plugin.publish("well", lambda: [Unit("a")])
            registrar = Registrar(kubelet.plugins, [plugin], every=LONG)
            running = asyncio.create_task(registrar.run())
            try:
                await kubelet.until_known("example.com/gpu")
                began = time.monotonic()
                await kubelet.restart()
                await kubelet.until_known("example.com/gpu")
                assert time.monotonic() - began < LONG / 2
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())
