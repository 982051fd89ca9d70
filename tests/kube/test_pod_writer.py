import asyncio
from contextlib import asynccontextmanager

import pytest

from conformance.bodies import pod
from kube.lines import KEEP, client
from slicewise.kube.leading.fence import Fence, LeaseTiming
from slicewise.kube.objects import ObjectReader
from slicewise.kube.outcomes import PodName, WriteStatus
from slicewise.kube.pod_writer import PodWriter
from slicewise.model import PodRecord
from slicewise_playground.api.faults import InjectedFault

MARKS = PodRecord({"gpu": "0", "other": "1"}, {"slicewise.io/bound": "yes"})


class Hands:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.now = 0.0

    async def sleep(self, seconds):
        self.now += seconds


@asynccontextmanager
async def writing(playground, *, seconds=1.0, hands=None):
    facts = {} if hands is None else {"sleep": hands.sleep}
    async with client(playground.url, **facts) as line:
        clock = None if hands is None else lambda: hands.now
        yield PodWriter(line, ObjectReader(KEEP), bind_seconds=seconds, clock=clock)


def made(playground, name="a"):
    playground.create("pods", pod(name))
    return key(playground, name)


def key(playground, name="a"):
    return PodName(playground.get("pods", name)["metadata"]["uid"], "default", name)


def run(playground, work, **facts):
    async def claim():
        async with writing(playground, **facts) as writes:
            return await work(writes), writes._client.calls.counts

    return asyncio.run(claim())


def test_bind_and_marks_are_one_write(playground):
    name = made(playground)

    outcome, counts = run(playground, lambda writes: writes.bind(name, "n1", MARKS))

    bound = playground.get("pods", "a")
    assert outcome.status is WriteStatus.DONE
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == MARKS.annotations
    assert bound["metadata"]["labels"] == MARKS.labels
    written = {call: times for call, times in counts.items() if call[0] != "get"}
    assert written == {("create", "pods/binding", "201"): 1}


@pytest.mark.parametrize(
    ("node", "record", "status"),
    [
        pytest.param("n1", MARKS, WriteStatus.REPEATED, id="same"),
        pytest.param("n1", PodRecord({"gpu": "1"}), WriteStatus.OTHER_RECORD, id="other-record"),
        pytest.param("n2", MARKS, WriteStatus.CONFLICT, id="elsewhere"),
    ],
)
def test_second_bind_changes_nothing_and_says_what_it_found(playground, node, record, status):
    name = made(playground)
    run(playground, lambda writes: writes.bind(name, "n1", MARKS))
    before = playground.get("pods", "a")

    outcome, _ = run(playground, lambda writes: writes.bind(name, node, record))

    assert outcome.status is status
    assert outcome.pod.node == "n1"
    assert playground.get("pods", "a") == before


def test_namesake_is_not_bound(playground):
    name = made(playground)
    playground.delete("pods", "a")
    made(playground)

    outcome, _ = run(playground, lambda writes: writes.bind(name, "n1", MARKS))

    assert outcome.status is WriteStatus.GONE
    assert "nodeName" not in playground.get("pods", "a")["spec"]


def test_missing_pod_is_gone(playground):
    outcome, _ = run(playground, lambda w: w.bind(PodName("u", "default", "a"), "n1", MARKS))

    assert outcome.status is WriteStatus.GONE


def test_gated_pod_is_refused_in_the_servers_words(playground):
    playground.create("pods", pod(schedulingGates=[{"name": "wait"}]))
    name = key(playground)

    outcome, _ = run(playground, lambda writes: writes.bind(name, "n1", MARKS))

    assert outcome.status is WriteStatus.REFUSED
    assert "schedulingGates" in outcome.detail


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        pytest.param(InjectedFault(code=403), WriteStatus.REFUSED, id="403"),
        pytest.param(InjectedFault(code=429, retry_after=0), WriteStatus.DONE, id="429-once"),
        pytest.param(InjectedFault(code=429, times=None), WriteStatus.REFUSED, id="429-always"),
        pytest.param(InjectedFault(code=500), WriteStatus.UNKNOWN, id="500"),
        pytest.param(InjectedFault(code=504, after=True), WriteStatus.UNKNOWN, id="504-after"),
        pytest.param(InjectedFault(action="cut"), WriteStatus.UNKNOWN, id="cut"),
        pytest.param(InjectedFault(action="hang"), WriteStatus.UNKNOWN, id="hang"),
    ],
)
def test_answers_of_a_bind_mean_what_they_say(playground, fault, status):
    name = made(playground)
    playground.faults.add(InjectedFault(**{**_fields(fault), "resource": "pods/binding"}))

    outcome, _ = run(playground, lambda writes: writes.bind(name, "n1", MARKS), seconds=0.3)

    assert outcome.status is status


def _fields(fault):
    return {field: getattr(fault, field) for field in type(fault).__dataclass_fields__}


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        pytest.param(InjectedFault(code=504, after=True), WriteStatus.REPEATED, id="carried-out"),
        pytest.param(InjectedFault(action="cut"), WriteStatus.REPEATED, id="carried-out-and-cut"),
        pytest.param(InjectedFault(code=504), WriteStatus.REFUSED, id="not-carried-out"),
    ],
)
def test_unknown_bind_is_settled_by_reading(playground, fault, status):
    name = made(playground)
    playground.faults.add(InjectedFault(**{**_fields(fault), "resource": "pods/binding"}))
    playground.faults.add(InjectedFault(verb="get", code=500, times=2))

    async def bind_and_settle(writes):
        unknown = await writes.bind(name, "n1", MARKS)
        assert unknown.status is WriteStatus.UNKNOWN
        return await writes.settle_bind(name, "n1", MARKS, seconds=10)

    outcome, _ = run(playground, bind_and_settle, hands=Hands())

    assert outcome.status is status


def test_unbound_pod_is_not_called_unbound_while_the_server_may_still_bind_it(playground):
    name, hands = made(playground), Hands()
    playground.faults.add(InjectedFault(resource="pods/binding", code=504))

    async def settle(writes):
        await writes.bind(name, "n1", MARKS)
        early = await writes.settle_bind(name, "n1", MARKS, seconds=3)
        return early.status, (await writes.settle_bind(name, "n1", MARKS, seconds=9)).status

    statuses, _ = run(playground, settle, seconds=5.0, hands=hands)

    assert statuses == (WriteStatus.UNKNOWN, WriteStatus.REFUSED)
    assert 6 <= hands.now < 9


@pytest.mark.parametrize("resource", ["pods/binding", "pods"])
def test_write_of_unknown_outcome_is_unsettled_until_the_server_must_have_ended_it(
    playground, resource
):
    name, hands = made(playground), Hands()
    playground.faults.add(InjectedFault(resource=resource, code=504))

    async def look(writes):
        assert not writes.unsettled
        if resource == "pods":
            await writes.annotate_pod(name, MARKS)
        else:
            await writes.bind(name, "n1", MARKS)
        before, hands.now = writes.unsettled, hands.now + 6.0
        return before, writes.unsettled

    assert run(playground, look, seconds=5.0, hands=hands)[0] == (True, False)


def test_binds_that_were_never_settled_do_not_pile_up(playground):
    names, hands = [made(playground, name) for name in "abc"], Hands()
    playground.faults.add(InjectedFault(resource="pods/binding", code=504, times=None))

    async def bind_all(writes):
        for name in names:
            await writes.bind(name, "n1", MARKS)
            hands.now += 60.0
        return len(writes._open)

    assert run(playground, bind_all, seconds=5.0, hands=hands)[0] == 1


def test_closed_fence_refuses_both_writes_without_sending_them(playground):
    name, fence = made(playground), Fence(LeaseTiming())

    async def write(writes):
        writes._client.fence = fence
        return [await writes.bind(name, "n1", MARKS), await writes.annotate_pod(name, MARKS)]

    outcomes, counts = run(playground, write)

    assert {each.status for each in outcomes} == {WriteStatus.REFUSED}
    assert "nothing was sent" in outcomes[0].detail
    assert not counts


def test_limits_of_the_lease_go_with_the_bind(playground):
    """The embedded API counts only what it took, so the query is looked at on its way."""
    name, sent = made(playground), []
    clock = Hands()
    fence = Fence(LeaseTiming(), lambda: clock.now)
    fence.renew(-9.0)

    async def bind(writes):
        line = writes._client
        line.fence, send = fence, line.send

        async def note(call, body, **facts):
            sent.append((call.query["timeout"], facts["seconds"]))
            return await send(call, body, **facts)

        line.send = note
        return await writes.bind(name, "n1", MARKS)

    outcome, _ = run(playground, bind, seconds=5.0)

    assert outcome.status is WriteStatus.DONE
    assert sent == [("4000ms", 1.0)]


def test_bind_that_lands_late_is_found(playground):
    name, hands = made(playground), Hands()
    playground.faults.add(InjectedFault(resource="pods/binding", code=504))

    async def settle(writes):
        await writes.bind(name, "n1", MARKS)
        task = asyncio.create_task(writes.settle_bind(name, "n1", MARKS, seconds=60))
        await asyncio.sleep(0)
        playground.bind("a", "n1", annotations=dict(MARKS.annotations), labels=dict(MARKS.labels))
        return await task

    outcome, _ = run(playground, settle, seconds=5.0, hands=hands)

    assert outcome.status is WriteStatus.REPEATED


def test_settling_without_an_answer_stays_unknown(playground):
    name = made(playground)
    playground.faults.add(InjectedFault(verb="get", code=500, times=None))

    outcome, _ = run(
        playground, lambda w: w.settle_bind(name, "n1", MARKS, seconds=1), hands=Hands()
    )

    assert outcome.status is WriteStatus.UNKNOWN


def test_record_is_put_on(playground):
    name = made(playground)

    put, _ = run(playground, lambda writes: writes.annotate_pod(name, MARKS))
    marked = playground.get("pods", "a")["metadata"]

    assert put.status is WriteStatus.DONE
    assert put.pod.annotations == {"gpu": "0"}
    assert (marked["annotations"], marked["labels"]) == (MARKS.annotations, MARKS.labels)


def test_namesake_gets_no_marks(playground):
    name = made(playground)
    playground.delete("pods", "a")
    made(playground)

    outcome, _ = run(playground, lambda writes: writes.annotate_pod(name, MARKS))

    assert outcome.status is WriteStatus.GONE
    assert "annotations" not in playground.get("pods", "a")["metadata"]


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (InjectedFault(code=403), WriteStatus.REFUSED),
        (InjectedFault(code=409), WriteStatus.REFUSED),
        (InjectedFault(code=404), WriteStatus.GONE),
        (InjectedFault(code=500), WriteStatus.UNKNOWN),
        (InjectedFault(action="cut"), WriteStatus.UNKNOWN),
    ],
)
def test_answers_of_a_patch_mean_what_they_say(playground, fault, status):
    name = made(playground)
    playground.faults.add(InjectedFault(**{**_fields(fault), "verb": "patch"}))

    outcome, _ = run(playground, lambda writes: writes.annotate_pod(name, MARKS))

    assert outcome.status is status


def test_reads_tell_absent_from_present(playground):
    made(playground)

    async def read(writes):
        found = await writes.read_pod("default", "a")
        return found.name, await writes.read_pod("default", "b")

    assert run(playground, read)[0] == ("a", None)


def test_bind_of_unknown_outcome_is_left_unknown_in_time_when_the_server_falls_silent(playground):
    name = made(playground)
    playground.faults.add(InjectedFault(verb="create", resource="pods/binding", action="hang"))
    playground.faults.add(InjectedFault(verb="get", resource="pods", action="hang", times=None))

    async def work(writes):
        first = await writes.bind(name, "n1", MARKS)
        async with asyncio.timeout(5):
            return first, await writes.settle_bind(name, "n1", MARKS, seconds=0.3)

    (first, settled), _ = run(playground, work, seconds=0.2)

    assert first.status is WriteStatus.UNKNOWN
    assert settled.status is WriteStatus.UNKNOWN
