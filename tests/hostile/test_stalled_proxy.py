"""A proxy before the real API server that keeps connections open and lets nothing through."""

import asyncio
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from dataclasses import replace
from time import monotonic

import pytest

from chaos.relay import Relay, address
from slicewise.extender.handlers import Extender
from slicewise.extender.server import ExtenderServer
from slicewise.kube.client import Client
from slicewise.kube.kubeconfig import read_kubeconfig
from slicewise.kube.pod_writer import PodWriter
from slicewise.state.live import LiveState

pytestmark = pytest.mark.cluster
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "behind-a-proxy"}}


@pytest.fixture
def relay(control_plane):
    relay = Relay(lambda: address(control_plane.server))
    relay.start()
    yield relay
    relay.stop()


@asynccontextmanager
async def serving(plane, relay):
    """An extender that alone reaches the API server through the proxy, and nobody elects."""
    server = relay.url.replace("http:", "https:")
    async with Client(replace(read_kubeconfig(plane.admin.path), server=server)) as client:
        state = LiveState(client)
        service = ExtenderServer(Extender(state, PodWriter(client, state.reader)))
        await service.start()
        try:
            await state.start()
            yield service, state
        finally:
            await service.stop()
            await state.stop()
            # TLS would wait for a farewell that is held back.
            relay.restore()


def ask(url):
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def reach(reached, seconds):
    """Seconds until this is so."""
    began = monotonic()
    while not await reached():
        assert monotonic() - began < seconds
        await asyncio.sleep(0.5)
    return monotonic() - began


def test_proxy_that_lets_nothing_through_is_noticed_within_45_s(control_plane, relay):
    async def answers(url, status, words):
        code, text = await asyncio.to_thread(ask, url)
        return code == status and words in text

    async def claim():
        async with serving(control_plane, relay) as (service, _):
            assert (await asyncio.to_thread(ask, service.url))[0] == 200
            relay.silence()
            took = await reach(lambda: answers(service.url, 503, "stale for 4"), 45)
            relay.restore()
            back = await reach(lambda: answers(service.url, 200, "ok"), 45)
            print(f"unready after {took:.1f} s, ready again after {back:.1f} s")

    asyncio.run(claim())


def test_change_held_back_on_open_connections_is_known_within_45_s(control_plane, relay):
    async def knows(state):
        return "behind-a-proxy" in state.snapshot().slots

    async def claim():
        async with serving(control_plane, relay) as (_, state):
            relay.hold()
            with control_plane.api() as api:
                api.create("/api/v1/nodes", NODE)
            took = await reach(lambda: knows(state), 45)
            print(f"known after {took:.1f} s")

    try:
        asyncio.run(claim())
    finally:
        with control_plane.api() as api:
            api.delete("/api/v1/nodes/behind-a-proxy")
