"""One agent and several replicas of the server that it reports to."""

import asyncio
import ssl

import pytest
import trustme

from reports.listener import Listener, Plain, reporting, until
from reports.values import node, pod
from slicewise.reports import ReplicaReporters, Reporter, ReportError, read_endpoint

SERVICE = ("replicas.test", 8080)


class Names:
    """A name server that the test changes."""

    def __init__(self, *listeners):
        self.broken = False
        self.show(*listeners)

    def show(self, *listeners):
        self.found = {("127.0.0.1", int(each.url.rpartition(":")[2])) for each in listeners}

    async def resolve(self, named):
        assert named == SERVICE
        if self.broken:
            raise OSError("no such name")
        return set(self.found)


def replicas(names, address="http://localhost", credentials=None):
    def make(endpoint):
        return Reporter(address, credentials or Plain(), endpoint=endpoint)

    return ReplicaReporters(make, (SERVICE,), resolve=names.resolve, lookup_seconds=0.01)


def knows(listener, name="a"):
    last = listener.memories[-1].report if listener.memories else None
    return last is not None and [each.name for each in last.pods] == [name]


def test_every_replica_knows_the_node_and_follows_its_changes():
    async def claim():
        async with (
            Listener() as one,
            Listener() as two,
            reporting(replicas(Names(one, two))) as agent,
        ):
            agent.update(node(pods=[pod("a")]))
            await until(lambda: knows(one) and knows(two))
            agent.update(node(pods=[pod("b")]))
            await until(lambda: knows(one, "b") and knows(two, "b"))

    asyncio.run(claim())


def test_lost_replica_costs_the_others_nothing():
    async def claim():
        async with Listener() as one:
            async with Listener() as two:
                names = Names(one, two)
                task = asyncio.create_task((agent := replicas(names)).run())
                agent.update(node(pods=[pod("a")]))
                await until(lambda: knows(one) and knows(two))
            agent.update(node(pods=[pod("b")]))
            await until(lambda: knows(one, "b"))
            assert (len(one.memories), one.memories[0].ended.is_set()) == (1, False)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(claim())


def test_new_replica_is_told_everything_and_one_that_is_gone_is_left():
    async def claim():
        async with Listener() as one, Listener() as two:
            names = Names(one)
            async with reporting(replicas(names)) as agent:
                agent.update(node(pods=[pod("a")]))
                await until(lambda: knows(one))
                names.show(two)
                await until(lambda: knows(two) and one.memories[-1].ended.is_set())
                assert len(agent.reporters) == 1

    asyncio.run(claim())


def test_replicas_stay_while_their_name_cannot_be_looked_up():
    async def claim():
        async with Listener() as one:
            names = Names(one)
            async with reporting(replicas(names)) as agent:
                agent.update(node(pods=[pod("a")]))
                await until(lambda: knows(one))
                names.broken = True
                agent.update(node(pods=[pod("b")]))
                await until(lambda: knows(one, "b"))
                assert len(one.memories) == 1

    asyncio.run(claim())


def test_replica_must_show_the_certificate_of_the_server(tmp_path):
    async def claim():
        authority = trustme.CA()
        tls = ssl.create_default_context()
        authority.configure_trust(tls)
        async with Listener(tmp_path, authority) as one:
            names, credentials = Names(one), Plain(tls)
            # Its certificate is for localhost, and it is reached by its address.
            async with reporting(replicas(names, "https://localhost", credentials)) as agent:
                agent.update(node(pods=[pod("a")]))
                await until(lambda: knows(one))
            async with reporting(replicas(names, "https://other.test", credentials)) as agent:
                agent.update(node(pods=[pod("b")]))
                await until(lambda: agent.reporters)
                (reporter,) = agent.reporters.values()
                await until(lambda: reporter.failures > 1)
                assert not knows(one, "b")

    asyncio.run(claim())


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [("name.svc:8080", ("name.svc", 8080)), ("[fd00::1]:443", ("fd00::1", 443))],
)
def test_endpoint_is_read(text, endpoint):
    assert read_endpoint(text) == endpoint


@pytest.mark.parametrize("text", ["name", "name:", ":80", "name:0", "name:x", "name:70000"])
def test_endpoint_without_host_or_port_is_refused(text):
    with pytest.raises(ReportError, match="expected host:port"):
        read_endpoint(text)
