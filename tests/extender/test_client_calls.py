"""Asking an extender behind a Service, as the API server's proxy hands questions on."""

import asyncio
from dataclasses import replace

import pytest

import builders
from fakes.cluster import FakeState, FakeWriter
from slicewise.extender.client.calls import ExtenderTarget, NoAnswerError, open_call
from slicewise.extender.handlers import Extender
from slicewise.extender.routes import build_handler
from slicewise.httpd import HttpResponse
from slicewise.kube.client import Client
from slicewise.kube.credentials import Access
from slicewise_playground.threaded_server import ThreadedServer

HOME = "/api/v1/namespaces/gpu/services/extender:3456/proxy"
POD = {
    "metadata": {"name": "p0", "namespace": "default"},
    "spec": {
        "containers": [{"name": "c0", "resources": {"limits": {"slicewise.io/gpu": 1}}}],
    },
}


def proxy():
    """An API server that knows one Service, and the extender behind it."""
    pod = builders.pod(limits={"slicewise.io/gpu": 1})
    behind = build_handler(Extender(FakeState(builders.node("a", 1)), FakeWriter(pod)))

    async def handle(request):
        if not request.path.startswith(HOME):
            return HttpResponse(403, b'{"message": "services is forbidden", "reason": "Forbidden"}')
        return await behind(replace(request, path=request.path.removeprefix(HOME)))

    return ThreadedServer(handle)


def ask(service, path, body):
    async def run(url):
        async with (
            Client(Access(url)) as client,
            open_call(client, ExtenderTarget(service=service)) as asks,
        ):
            return await asks(path, body)

    with proxy() as server:
        return asyncio.run(run(server.url))


def test_pod_is_explained_through_the_proxy():
    answer = ask("gpu/extender:3456", "/explain", {"Pod": POD, "NodeNames": ["a"]})

    assert answer["best"]["node"] == "a"


def test_pods_are_foretold_through_the_proxy():
    answer = ask("gpu/extender:3456", "/what-if", {"Pods": [{"Pod": POD}, {"Pod": POD}]})

    assert [each["fits"] for each in answer["pods"]] == [True, False]


@pytest.mark.parametrize(
    ("service", "pods", "words"),
    [
        pytest.param("gpu/extender:3456", [], "Pods is empty: expected pods", id="pods"),
        pytest.param("gpu/other:1", [{"Pod": POD}], "services is forbidden", id="rights"),
        pytest.param("gpu/", [{"Pod": POD}], "expected namespace/name:port", id="name"),
    ],
)
def test_what_the_proxy_or_the_extender_refuses_is_said(service, pods, words):
    with pytest.raises(NoAnswerError, match=words):
        ask(service, "/what-if", {"Pods": pods})
