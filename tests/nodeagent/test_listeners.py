"""An agent whose driver comes late: alive and not ready, then as any other."""

import asyncio
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from kubelet.test_runtime import FakeRuntime
from nodeagent.test_run import _GPUS, _live
from slicewise.httpd import ServerSettings
from slicewise.nodeagent.compat.gpu_manager import GpuManagerOptions
from slicewise.nodeagent.configuration import NodeConfig
from slicewise.nodeagent.gpus.first_look import await_driver
from slicewise.nodeagent.run import run_agent
from slicewise.nvml.driver import DriverError, Hardware


class LateDriver:
    """Answers from the given question on."""

    def __init__(self, from_question):
        self.left = from_question

    def hardware(self):
        self.left -= 1
        if self.left > 0:
            raise DriverError("cannot load libnvidia-ml.so.1: install the NVIDIA driver")
        return Hardware((), None, "580", "13.0")


def test_driver_is_asked_until_it_answers_and_the_reason_is_told(caplog):
    told, pauses = [], []

    async def sleep(seconds):
        pauses.append(seconds)

    asyncio.run(await_driver(LateDriver(14), told.append, sleep=sleep))

    assert told == ["cannot load libnvidia-ml.so.1: install the NVIDIA driver"] * 13
    assert pauses == [5.0] * 13
    # At the first try and once a minute.
    assert caplog.text.count("waiting for the driver") == 2


async def ask(url):
    def once():
        try:
            with urllib.request.urlopen(url) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(once)


def prepare(wired, **facts):
    """The options of a whole agent on ports of its own, which mounts and links nothing."""
    command, folder = wired.command, wired.description.parent
    paths = replace(command.settings.paths, limiter=folder / "none.so", limits=folder / "limits")
    return replace(
        command,
        settings=replace(command.settings, paths=paths),
        kubeconfig=wired.playground.write_kubeconfig(folder / "kubeconfig"),
        listen=ServerSettings(port=0),
        health=ServerSettings(port=0),
        flags=NodeConfig(runtime=folder / "runtime.sock"),
        manager=GpuManagerOptions(display=None, roots=(folder,)),
        **facts,
    )


def test_agent_without_a_driver_is_alive_and_says_what_it_waits_for(tmp_path, monkeypatch):
    monkeypatch.setattr("slicewise.nodeagent.gpus.first_look.RETRY_SECONDS", 0.05)

    async def act(wired):
        wired.describe(_GPUS + "unavailable: true")
        stop, urls = asyncio.Event(), []
        runtime = await FakeRuntime().start(tmp_path / "runtime.sock")
        running = asyncio.create_task(run_agent(prepare(wired), stop, started=urls.append))
        await wired.until(lambda: urls or running.done())
        alive, unready = await ask(f"{urls[0]}/healthz"), await ask(f"{urls[0]}/readyz")
        page = await ask(f"{urls[0]}/usage/gpus")
        published = wired.gpus
        wired.describe(_GPUS)
        await wired.until(lambda: wired.gpus or running.done())
        later = await ask(f"{urls[0]}/usage/gpus")
        stop.set()
        await running
        await runtime.stop(None)
        return alive, unready, page, published, later

    alive, unready, page, published, later = _live(tmp_path, act)

    assert alive == (200, "ok")
    assert unready[0] == 503
    assert "does not answer" in unready[1]
    assert page[0] == 503
    assert published == ()
    assert later[0] == 200


def test_agent_ends_at_once_where_that_is_asked_for(tmp_path):
    async def act(wired):
        wired.describe(_GPUS + "unavailable: true")
        await run_agent(prepare(wired, fail_on_init_error=True), asyncio.Event())

    with pytest.raises(DriverError, match="does not answer"):
        _live(tmp_path, act)


def test_waiting_agent_stops_when_it_is_told_to(tmp_path):
    async def act(wired):
        wired.describe(_GPUS + "unavailable: true")
        stop = asyncio.Event()
        await run_agent(prepare(wired), stop, started=lambda _: stop.set())
        return wired.gpus

    assert _live(tmp_path, act) == ()
