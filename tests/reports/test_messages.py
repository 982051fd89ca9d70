import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.values import gpu, node, pod
from slicewise.reports import (
    MeasuredUse,
    NodeReport,
    ProcessReport,
    ReportError,
    apply_delta,
    find_delta,
)
from slicewise.reports.messages import HEARTBEAT, FrameReader, ReportDelta, encode

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
GPUS = st.dictionaries(NAMES, st.booleans()).map(
    lambda found: tuple(gpu(uuid, healthy=found[uuid]) for uuid in sorted(found))
)
PODS = st.dictionaries(NAMES, st.lists(NAMES, max_size=3)).map(
    lambda found: tuple(pod(name, gpus=found[name]) for name in sorted(found))
)
PROCESSES = st.lists(NAMES, max_size=3).map(
    lambda found: tuple(ProcessReport(gpu=uuid, pid=at) for at, uuid in enumerate(found))
)
REPORTS = st.builds(
    lambda **facts: NodeReport(node="n1", **facts),
    gpus=GPUS,
    pods=PODS,
    why=st.sampled_from(["", "no driver"]),
    processes=PROCESSES,
    sampled_at=st.none() | st.sampled_from([1.5, 1_767_000_000.25]),
)


@given(REPORTS, REPORTS)
def test_change_makes_the_new_report_of_the_old_one(old, new):
    change = find_delta(old, new)

    assert (old if change is None else apply_delta(old, change)) == new


def test_lost_pod_is_named_and_its_neighbours_are_not():
    change = find_delta(node(pods=[pod("a"), pod("b"), pod("c")]), node(pods=[pod("a"), pod("c")]))

    assert change == ReportDelta(pods_lost=("ml/b",))


def test_changed_use_of_one_gpu_sends_that_gpu_alone():
    old = node(gpus=(gpu("GPU-a"), gpu("GPU-b")))
    new = node(gpus=(gpu("GPU-a"), gpu("GPU-b", use=MeasuredUse(memory_mib=512, cores=40))))

    assert find_delta(old, new) == ReportDelta(gpus=(new.gpus[1],))


def test_new_sample_that_measures_the_same_sends_its_time_alone():
    old = node(pods=[pod("a")], sampled_at=5.0)
    new = node(pods=[pod("a")], sampled_at=10.0)

    delta = find_delta(old, new)

    assert delta == ReportDelta(sampled_at=10.0)
    assert apply_delta(old, delta).pods is old.pods


def test_report_of_an_agent_that_knows_less_is_read():
    bare = {"type": "report", "node": "n1", "gpus": [{"uuid": "GPU-a", "model": "T4"}]}
    body = msgspec.msgpack.encode(bare)

    (read,) = FrameReader().feed(len(body).to_bytes(4, "big") + body)

    assert (read.node, read.processes, read.sampled_at) == ("n1", (), None)
    assert read.gpus[0].processes is None


@given(st.lists(st.none() | REPORTS, max_size=6), st.integers(1, 50))
def test_messages_survive_being_cut_anywhere(messages, size):
    sent = b"".join(HEARTBEAT if message is None else encode(message) for message in messages)
    frames = FrameReader()

    found = [
        message for at in range(0, len(sent), size) for message in frames.feed(sent[at : at + size])
    ]

    assert found == messages


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\xff\xff\xff\xff", id="too-long"),
        pytest.param(b"\0\0\0\1x", id="not-a-message"),
        pytest.param(b"\0\0\0\2\x80\x80", id="no-type"),
    ],
)
def test_nonsense_is_refused(sent):
    with pytest.raises(ReportError):
        FrameReader().feed(sent)


def test_fields_of_newer_agents_are_ignored():
    report = msgspec.to_builtins(node())
    body = msgspec.msgpack.encode({**report, "type": "report", "novelty": [1, 2]})

    assert list(FrameReader().feed(len(body).to_bytes(4, "big") + body)) == [node()]


def test_busy_gpus_are_those_that_any_container_holds():
    held = node(pods=[pod("a", gpus=["GPU-a", "GPU-b"]), pod("b", gpus=["GPU-b"])])

    assert held.busy == {"GPU-a", "GPU-b"}
