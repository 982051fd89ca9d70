import asyncio
import ssl

import pytest
import trustme

from reports.listener import Listener, Plain, reporting, until
from reports.values import gpu, node, pod
from slicewise.model.backoff import Backoff
from slicewise.reports import (
    FileCredentials,
    ReportDelta,
    Reporter,
    ReportError,
    ReportTiming,
    find_delta,
    name_brand,
    number_brand,
)
from slicewise.reports.messages import HEARTBEAT, encode

QUICK = ReportTiming(heartbeat_seconds=0.05, backoff=Backoff(0.01, 0.05), connect_seconds=5.0)


def run(scene):
    asyncio.run(asyncio.wait_for(scene, 60))


def test_agent_sends_everything_once_and_then_what_changes():
    async def scene():
        async with Listener() as listener:
            reporter = Reporter(listener.url, Plain(), timing=QUICK)
            reporter.update(node(pods=[pod("a"), pod("b")]))
            async with reporting(reporter):
                await until(lambda: listener.memories and listener.memories[0].report)
                reporter.update(node(pods=[pod("b")]))
                await until(lambda: listener.memories[0].changes)

            memory = listener.memories[0]
            assert memory.changes == [ReportDelta(pods_lost=("ml/a",))]
            assert memory.report == node(pods=[pod("b")])

    run(scene())


def test_quiet_agent_beats():
    async def scene():
        async with Listener() as listener:
            reporter = Reporter(listener.url, Plain(), timing=QUICK)
            reporter.update(node())
            async with reporting(reporter):
                await until(lambda: listener.memories and listener.memories[0].beats > 3)

            assert listener.memories[0].changes == []

    run(scene())


def test_agent_shows_its_token_and_node():
    async def scene():
        async with Listener() as listener:
            reporter = Reporter(listener.url, Plain(), timing=QUICK)
            reporter.update(node("rack 1/a"))
            async with reporting(reporter):
                await reporter.connected.wait()

            assert listener.requests[0].headers["authorization"] == "Bearer secret"
            assert listener.requests[0].query == {"node": "rack 1/a"}

    run(scene())


def test_agent_returns_with_everything_after_the_server_hung_up():
    async def scene():
        async with Listener() as listener:
            reporter = Reporter(listener.url, Plain(), timing=QUICK)
            reporter.update(node(pods=[pod("a")]))
            async with reporting(reporter):
                await until(lambda: listener.memories and listener.memories[0].report)
                listener.receivers[0].close()
                await until(lambda: len(listener.memories) > 1 and listener.memories[1].report)

            assert listener.memories[0].ended.is_set()
            assert listener.memories[1].report == node(pods=[pod("a")])

    run(scene())


def test_refused_agent_tries_again_until_it_is_welcome():
    async def scene():
        async with Listener() as listener:
            listener.refusal = 401
            reporter = Reporter(listener.url, Plain(), timing=QUICK)
            reporter.update(node())
            async with reporting(reporter):
                await until(lambda: len(listener.requests) > 2)
                assert not reporter.connected.is_set()
                listener.refusal = None
                await reporter.connected.wait()

    run(scene())


def test_agent_speaks_only_to_a_server_of_its_authority(tmp_path):
    ours, theirs = trustme.CA(), trustme.CA()
    ours.cert_pem.write_to_path(tmp_path / "ours.pem")
    theirs.cert_pem.write_to_path(tmp_path / "theirs.pem")
    (tmp_path / "token").write_text("secret\n")

    async def scene():
        async with Listener(tmp_path, ours) as listener:
            wrong = Reporter(
                listener.url,
                FileCredentials(tmp_path / "theirs.pem", tmp_path / "token"),
                timing=QUICK,
            )
            wrong.update(node("wrong"))
            right = Reporter(
                listener.url,
                FileCredentials(tmp_path / "ours.pem", tmp_path / "token"),
                timing=QUICK,
            )
            right.update(node("right"))
            async with reporting(wrong), reporting(right):
                await right.connected.wait()
                with pytest.raises(ssl.SSLCertVerificationError):
                    await wrong._speak("wrong")

            assert {request.query["node"] for request in listener.requests} == {"right"}

    run(scene())


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(HEARTBEAT, id="beat-before-report"),
        pytest.param(encode(ReportDelta(pods_lost=("a/b",))), id="change-before-report"),
        pytest.param(encode(node("other")), id="another-node"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http"),
    ],
)
def test_agent_that_does_not_keep_to_the_protocol_is_cut_off(sent):
    async def scene():
        async with Listener() as listener:
            reporter = Reporter(listener.url, Plain(), timing=QUICK)
            _, writer = await reporter._connect("n1")
            writer.write(sent)
            await until(lambda: listener.memories and listener.memories[0].ended.is_set())
            writer.transport.abort()

            assert listener.memories[0].report is None

    run(scene())


def test_delays_grow_and_have_jitter():
    reporter = Reporter("http://localhost:1", Plain(), timing=ReportTiming())

    drawn = {failures: [reporter.delay(failures) for _ in range(50)] for failures in (0, 3, 90)}

    assert all(0.1 <= delay <= 0.2 for delay in drawn[0])
    assert all(0.8 <= delay <= 1.6 for delay in drawn[3])
    assert all(2.5 <= delay <= 5.0 for delay in drawn[90])
    assert len(set(drawn[3])) > 40


def test_reporter_keeps_to_one_node():
    reporter = Reporter("http://localhost:1", Plain())
    reporter.update(node("n1"))

    with pytest.raises(ReportError, match="'n2': expected 'n1'"):
        reporter.update(node("n2"))


@pytest.mark.parametrize("address", ["gpuserver", "ftp://gpuserver", "https://"])
def test_address_that_leads_nowhere_is_refused(address):
    with pytest.raises(ReportError, match="expected https://host"):
        Reporter(address, Plain())


def test_brand_of_a_newer_driver_is_an_unknown_brand():
    assert name_brand(2) == "BRAND_TESLA"
    assert name_brand(99) == name_brand(-1) == "BRAND_UNKNOWN"
    assert number_brand("BRAND_TITAN_RTX") == 16


def test_equal_reports_need_no_message():
    assert find_delta(node(gpus=(gpu(),)), node(gpus=(gpu(),))) is None
