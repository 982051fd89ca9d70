"""The API over a registry with a clock of its own, called without a network."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from slicewise.httpd import HttpRequest, Stream, Upgrade
from slicewise.kube.access_reviews import User
from slicewise.metricsapi.agents import AgentRules
from slicewise.metricsapi.auth import Authorities, RequestAuth
from slicewise.metricsapi.broadcaster import Broadcaster
from slicewise.metricsapi.registry import NodeRegistry
from slicewise.metricsapi.routes import MetricsRoutes

PREFIX = "/apis/metrics.nvidia.com/v1alpha1"
SECOND = "/apis/nvidia-gpu-scheduler/v1"
START = datetime(2026, 1, 5, 10, 0, 0, 250000, tzinfo=UTC)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class Judge:
    """Knows tokens and rights as the test says, and counts how often it was asked."""

    def __init__(self):
        self.users = {"reader": User("reader")}
        self.rights = {("reader", "list"), ("reader", "watch"), ("reader", "create")}
        self.asked = []

    async def identify(self, token):
        self.asked.append(token)
        return self.users.get(token)

    async def permits(self, user, attributes):
        self.asked.append((user.name, attributes.verb, attributes.resource))
        return (user.name, attributes.verb) in self.rights


class Scene:
    """A registry, a broadcaster and an API around them."""

    def __init__(self, *, rules=None, history=8192, queue=4096):
        self.seconds = 0.0
        self.judge = Judge()
        self.broadcaster = Broadcaster(history, queue)
        self.registry = NodeRegistry(
            self.broadcaster,
            clock=lambda: self.seconds,
            now=lambda: START + timedelta(seconds=self.seconds),
        )
        self.broadcaster.attach(self.registry)
        auth = RequestAuth(self.judge, Authorities)
        self.api = MetricsRoutes(
            self.registry, self.broadcaster, auth, rules or AgentRules(), namespace="kube-system"
        )

    def tell(self, report):
        """The node's agent sends this over a connection of its own."""
        session = self.registry.open(report.node)
        session.replace(report)
        return session

    async def ask(self, path, method="GET", *, token="reader", body=b"", headers=(), **query):
        """The answer to one request."""
        fields = [*headers]
        if token:
            fields.append(("authorization", f"Bearer {token}"))
        request = HttpRequest(
            method=method,
            path=path,
            query=query,
            headers=dict(fields),
            body=body,
            gone=asyncio.Event().wait,
            fields=fields,
        )
        # As the server does: by the head first, whose body is not there yet.
        admitted = await self.api.admit(replace(request, body=b""))
        return await self.api.handle(request) if isinstance(admitted, int) else admitted


def read(scene, path, **facts):
    """The decoded body of one answer that must be 200."""

    async def once():
        answer = await scene.ask(path, **facts)
        if isinstance(answer, Stream):
            return b"".join([chunk async for chunk in answer.chunks])
        assert not isinstance(answer, Upgrade)
        assert answer.status == 200, answer.body
        return answer.body

    return json.loads(asyncio.run(once()))


class Lines:
    """The lines of a watch, one by one."""

    def __init__(self, answer):
        self._chunks = answer.chunks
        self._rest = []

    async def next(self):
        """The next line, decoded."""
        while not self._rest:
            chunk = await asyncio.wait_for(anext(self._chunks), 20)
            assert chunk.endswith(b"\n")
            self._rest = chunk.splitlines()
        return json.loads(self._rest.pop(0))

    async def close(self):
        await self._chunks.aclose()
