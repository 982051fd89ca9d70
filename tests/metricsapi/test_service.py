import asyncio
import contextlib
import http.client
import json
import ssl
import threading

import aiohttp
import pytest
import trustme

from reports.listener import reporting, until
from reports.values import node, pod
from slicewise.httpd import HttpResponse, ServerSettings, Tls
from slicewise.kube.client import Client
from slicewise.kube.credentials import Access
from slicewise.metricsapi.auth import NODE_CLAIM
from slicewise.metricsapi.run import run_metrics_api
from slicewise.metricsapi.server import MetricsApiServer, MetricsApiSettings
from slicewise.model.backoff import Backoff
from slicewise.reports import Reporter, ReportTiming, trust
from slicewise_playground.cluster import Playground

PREFIX = "/apis/metrics.nvidia.com/v1alpha1"
QUICK = ReportTiming(heartbeat_seconds=0.2, backoff=Backoff(0.02, 0.1))
LISTEN = ServerSettings(host="127.0.0.1", stop_seconds=2.0)


@pytest.fixture
def playground():
    with Playground() as found:
        authority = trustme.CA().cert_pem.bytes().decode()
        data = {"client-ca-file": authority, "requestheader-client-ca-file": authority}
        found.create(
            "configmaps",
            {
                "metadata": {
                    "name": "extension-apiserver-authentication",
                    "namespace": "kube-system",
                },
                "data": data,
            },
        )
        found.answers.tokens = {
            "reader": {"username": "reader"},
            "stranger": {"username": "stranger"},
            "agent": {"username": "agent", "extra": {NODE_CLAIM: ["n1"]}},
        }
        found.answers.allow = lambda spec: spec["user"] in ("reader", "agent")
        yield found


class Borrowed:
    """An agent's credentials; the authority is looked up where the server keeps it."""

    def __init__(self, service):
        self._service = service

    async def tls(self):
        return trust(self._service.certificate_manager.identity.trusted.decode())

    async def token(self):
        return "agent"


@contextlib.contextmanager
def serving(playground, **settings):
    """The service on a loop of its own, and a way to run things on that loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    async def build():
        client = await Client(Access(playground.url)).__aenter__()
        service = MetricsApiServer(client, MetricsApiSettings(**{"listen": LISTEN, **settings}))
        await service.start()
        return client, service

    client, service = run(build())
    try:
        yield service, run
    finally:
        run(service.stop())
        run(client.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def connect(service, authority=None):
    pem = authority or service.certificate_manager.identity.trusted.decode()
    context = ssl.create_default_context(cadata=pem)
    return http.client.HTTPSConnection(
        "localhost", service.server.port, context=context, timeout=20
    )


def ask(service, path, token="reader", **facts):
    line = connect(service, **facts)
    try:
        line.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = line.getresponse()
        return answer.status, answer.read()
    finally:
        line.close()


def test_report_reaches_a_reader_over_tls(playground):
    with serving(playground) as (service, run):

        async def report():
            reporter = Reporter(
                service.url.replace("127.0.0.1", "localhost"), Borrowed(service), timing=QUICK
            )
            reporter.update(node(pods=[pod("a")]))
            async with reporting(reporter):
                await until(lambda: list(service.registry.pods()))

        run(report())
        status, body = ask(service, f"{PREFIX}/podresources")

    assert status == 200
    assert json.loads(body)["items"][0]["spec"]["pod_name"] == "a"


def test_authority_is_published_for_agents_and_again_when_it_was_changed(playground):
    place = ("kube-system", "slicewise-ca")
    with serving(playground, authority_configmap=place) as (service, run):
        trusted = service.certificate_manager.identity.trusted
        for _ in range(2):
            run(service._publish(place, trusted))
            found = playground.get("configmaps", place[1], place[0])
            assert found["data"] == {"ca.crt": trusted.decode()}
            playground.patch("configmaps", place[1], {"data": {"ca.crt": "x"}}, namespace=place[0])


def test_readers_and_strangers_are_told_apart_over_tls(playground):
    with serving(playground) as (service, _):
        codes = [
            ask(service, f"{PREFIX}/gpuinfos", token)[0] for token in ("reader", "stranger", "")
        ]
        health = ask(service, "/health", token="")

    assert codes == [200, 403, 401]
    assert health == (200, b"")


def test_agent_that_stops_is_unhealthy_and_one_that_returns_is_healthy(playground):
    with serving(playground, silence_seconds=0.6) as (service, run):
        reporter = Reporter(
            service.url.replace("127.0.0.1", "localhost"), Borrowed(service), timing=QUICK
        )
        reporter.update(node())

        async def health(word):
            await until(
                lambda: (
                    "n1" in service.registry.records
                    and service.registry.records["n1"].health.value == word
                )
            )

        async def stop_and_return():
            async with reporting(reporter):
                await health("True")
            await health("False")
            async with reporting(reporter):
                await health("True")

        run(stop_and_return())


def test_certificates_that_are_not_made_here_are_served(playground, tmp_path):
    authority = trustme.CA()
    leaf = authority.issue_cert("localhost")
    leaf.private_key_pem.write_to_path(tmp_path / "key.pem")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    listen = ServerSettings(host="127.0.0.1", tls=Tls(tmp_path / "cert.pem", tmp_path / "key.pem"))

    with serving(playground, listen=listen, authority=tmp_path / "ca.pem") as (service, _):
        pem = (tmp_path / "ca.pem").read_text()

        assert ask(service, f"{PREFIX}/gpuinfos", authority=pem)[0] == 200
        assert playground.objects("secrets", "kube-system") == []


def test_node_that_was_deleted_is_forgotten(playground):
    playground.create("nodes", {"metadata": {"name": "n1"}})
    with serving(playground, silence_seconds=0.3) as (service, run):

        async def report_and_fall_silent():
            service.registry.open("n1").replace(node(pods=[pod("a")]))
            await until(lambda: service.registry.records["n1"].health.value == "False")
            playground.delete("nodes", "n1")
            await until(lambda: not service.registry.records)

        run(report_and_fall_silent())

        assert json.loads(ask(service, f"{PREFIX}/podresources")[1])["items"] == []


def test_watcher_that_never_reads_is_dropped_and_leaves_nothing(playground):
    with serving(playground) as (service, run):
        service.broadcaster._queue = 50
        line = connect(service)
        headers = {"Authorization": "Bearer reader"}
        line.request("GET", f"{PREFIX}/podresources?watch=true", headers=headers)
        response = line.getresponse()

        async def flood():
            await until(lambda: service.broadcaster.watching == 1)
            session = service.registry.open("n1")
            for turn in range(2000):
                session.replace(node(pods=[pod(f"{'x' * 200}-{turn}-{at}") for at in range(20)]))
                await asyncio.sleep(0)
                if not service.broadcaster.watching:
                    return
            await until(lambda: service.broadcaster.watching == 0)

        run(flood())
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            response.read()
        line.close()


def test_scheduler_it_is_given_answers_under_both_groups(playground, tmp_path, monkeypatch):
    # Settings of the collector belong to a process of its own.
    monkeypatch.setattr("gc.set_threshold", lambda *_: None)
    config = playground.write_kubeconfig(tmp_path / "kubeconfig")
    settings = MetricsApiSettings(listen=LISTEN, kubeconfig=config)
    paths = [f"{PREFIX}/schedule/filter", "/apis/nvidia-gpu-scheduler/v1/schedule/filter"]
    ended = []

    @contextlib.asynccontextmanager
    async def echo(client, state, component, background):
        async def handle(request):
            return HttpResponse(200, request.path.encode())

        yield handle
        ended.append(component)

    async def scene():
        stop, started = asyncio.Event(), asyncio.Future()
        running = asyncio.create_task(
            run_metrics_api(settings, stop, scheduler=echo, started=started.set_result)
        )
        url = await asyncio.wait_for(started, 60)
        answers = []
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer reader"}) as session:
            for path in paths:
                async with session.post(url + path, json={}, ssl=False) as answer:
                    answers.append(await answer.text())
        stop.set()
        await running
        return answers

    assert asyncio.run(scene()) == [paths[0], paths[0]]
    assert ended == ["slicewise-metrics-api"]
