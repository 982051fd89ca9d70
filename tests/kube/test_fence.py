import asyncio
import contextlib
import socket
import ssl
import threading
import time

import pytest
import trustme
import uvloop

from conformance.bodies import pod
from kube.lines import client
from slicewise.httpd import ServerSettings, Tls
from slicewise.kube.client import Call
from slicewise.kube.credentials import Access
from slicewise.kube.errors import FencedError, LostError, RefusedError
from slicewise.kube.leading.fence import Fence, LeaseTiming, WriteLimits, read_clock
from slicewise_playground.api.faults import InjectedFault
from slicewise_playground.cluster import Playground

CREATE = Call("create", "pods", "/api/v1/namespaces/default/pods")
LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def fence(clock):
    """The fence of a lease of 15 seconds, renewed just now."""
    made = Fence(LeaseTiming(), clock)
    made.renew(clock.now)
    return made


@pytest.mark.parametrize(
    ("passed", "send", "server"),
    [
        pytest.param(0.0, 5.0, 5.0, id="just-renewed"),
        pytest.param(4.0, 5.0, 5.0, id="enough-time-for-both"),
        pytest.param(6.0, 4.0, 4.0, id="sending-ends-with-our-time"),
        pytest.param(9.0, 1.0, 4.0, id="server-ends-before-another-leads"),
    ],
)
def test_limits_of_a_write_end_before_another_can_lead(clock, fence, passed, send, server):
    clock.now += passed

    assert fence.limit(5.0) == WriteLimits(send, server)
    assert passed + send <= 10
    assert passed + send + server <= 14


@pytest.mark.parametrize("passed", [9.5, 10.0, 300.0])
def test_write_without_enough_time_is_not_sent(clock, fence, passed):
    clock.now += passed

    with pytest.raises(FencedError, match="the lease ends in"):
        fence.limit(5.0)


def test_fence_is_closed_before_the_first_renewal_and_at_the_deadline(clock):
    fence = Fence(LeaseTiming(), clock)
    assert not fence.open
    fence.renew(clock.now)
    clock.now += 9.99
    fence.check()
    clock.now += 0.01

    with pytest.raises(FencedError):
        fence.check()


def test_without_a_lease_the_fence_never_closes(clock):
    fence = Fence(None, clock)
    clock.now += 1e9

    assert fence.limit(5.0) == WriteLimits(5.0, 5.0)
    assert fence.open


def test_time_in_which_the_machine_sleeps_counts(monkeypatch):
    """CLOCK_MONOTONIC stands still in suspend, and others take the lease meanwhile."""
    asked = []
    monkeypatch.setattr("time.clock_gettime", lambda clock: asked.append(clock) or 5.0)

    assert read_clock() == 5.0
    assert asked == [time.CLOCK_BOOTTIME]


def test_connections_are_reset_once_at_the_deadline_and_not_before(clock, fence):
    resets = []
    for passed in (0, 9, 1, 5):
        clock.now += passed
        fence.look(lambda: resets.append(clock.now))

    assert resets == [110.0]


def test_renewal_in_time_keeps_connections(clock, fence):
    resets = []
    for _ in range(5):
        clock.now += 9
        fence.renew(clock.now)
        assert fence.look(lambda: resets.append(clock.now)) == 10.0

    assert resets == []


def test_connections_are_reset_while_the_event_loop_is_held():
    """The thread needs no event loop: nothing here runs one."""
    fence, done = Fence(LeaseTiming(lease_seconds=1, renew_seconds=0.02, retry_seconds=0.01)), []
    reset = threading.Event()
    fence.renew(fence._clock())

    with fence.resetting(lambda: (done.append(fence.open), reset.set())):
        assert reset.wait(10)

    assert done == [False]


def test_lost_leadership_resets_at_once(fence):
    reset = threading.Event()

    with fence.resetting(reset.set):
        fence.close()
        assert reset.wait(10)


def read_to_the_reset(accepted):
    """How many bytes a peer still finds before it learns of the reset."""
    accepted.settimeout(10)
    found = 0
    with contextlib.suppress(ConnectionResetError):
        while chunk := accepted.recv(1 << 20):
            found += len(chunk)
        raise AssertionError(f"closed without a reset after {found} bytes")
    return found


def listen():
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(10)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


@LOOPS
def test_abort_discards_what_the_peer_has_not_received(run):
    much = 900_000

    async def send_and_abort(listener, url):
        async with client(url) as line:
            sending = asyncio.create_task(line.send(CREATE, {"much": "x" * much}))
            accepted, _ = await asyncio.to_thread(listener.accept)
            await asyncio.to_thread(accepted.recv, 1, socket.MSG_PEEK)
            assert line.abort() == 1
            with pytest.raises(LostError):
                await sending
        return accepted

    listener, url = listen()
    with listener, run(send_and_abort(listener, url)) as accepted:
        assert read_to_the_reset(accepted) < much


@LOOPS
def test_request_that_times_out_under_a_fence_is_reset(run, fence):
    async def send(listener, url):
        async with client(url) as line:
            line.fence = fence
            sending = asyncio.create_task(line.send(CREATE, {"a": "b"}, seconds=0.1))
            accepted, _ = await asyncio.to_thread(listener.accept)
            with pytest.raises(LostError):
                await sending
        return accepted

    listener, url = listen()
    with listener, run(send(listener, url)) as accepted:
        read_to_the_reset(accepted)


@LOOPS
def test_abort_reaches_connections_under_tls(run, tmp_path):
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    certificate.cert_chain_pems[0].write_to_path(chain)
    certificate.private_key_pem.write_to_path(key)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)

    async def send_and_abort(playground):
        async with client(Access(playground.url, tls=trust)) as line:
            sending = asyncio.create_task(line.send(CREATE, pod("a")))
            while not count_creations(playground):
                await asyncio.sleep(0.01)
            assert line.abort() == 1
            with pytest.raises(LostError):
                await sending

    settings = ServerSettings(tls=Tls(chain, key), request_seconds=None)
    with Playground(settings=settings) as playground:
        playground.faults.add(InjectedFault(resource="pods", action="hang", times=None))
        run(send_and_abort(playground))


def fenced(playground, fence, work):
    async def run():
        async with client(playground.url) as line:
            line.fence = fence
            return await work(line)

    return asyncio.run(run())


def test_closed_fence_sends_nothing(playground, fence):
    fence.close()

    with pytest.raises(FencedError):
        fenced(playground, fence, lambda line: line.send(CREATE, pod("a")))

    assert not playground.writes("*", "pods")


def test_throttled_write_is_not_sent_again_after_its_time(playground, fence):
    playground.faults.add(InjectedFault(resource="pods", code=429, retry_after=9, times=None))

    with pytest.raises(RefusedError, match="429"):
        fenced(playground, fence, lambda line: line.send(CREATE, pod("a"), seconds=5.0))


def test_throttled_write_is_not_sent_again_when_the_fence_has_closed(playground, fence):
    playground.faults.add(InjectedFault(resource="pods", code=429, times=None))

    async def work(line):
        async def sleep(_):
            fence.close()

        line.sleep = sleep
        await line.send(CREATE, pod("a"), seconds=5.0)

    with pytest.raises(FencedError):
        fenced(playground, fence, work)

    assert count_creations(playground) == 1


def count_creations(playground):
    return sum(playground.requests("create", "pods").values())


def test_fence_that_closes_while_connecting_keeps_the_body_back(playground, fence):
    async def work(line):
        opened = line._open_socket

        def open_socket(address):
            fence.close()
            return opened(address)

        line._pool._open_socket = open_socket
        with pytest.raises(FencedError, match="not leading"):
            await line.send(CREATE, pod("a"))

    fenced(playground, fence, work)

    assert not playground.writes("*", "pods")
