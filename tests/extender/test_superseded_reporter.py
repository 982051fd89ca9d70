import builders
from fakes.cluster import FakeState, FakeWriter
from fakes.signed_pods import granted, sign, trusting
from slicewise.cluster import Ledger, NodeSeen, PodSeen
from slicewise.dialects import DEFAULT
from slicewise.extender.superseded_reporter import SupersededReporter

NODE = builders.node("n0", gpus=1, agent=True)
WHOLE = granted(builders.piece(0, 100, 40960))


def bound(uid, epoch):
    pod = builders.pod(uid=uid, name=uid, node="n0", limits={"nvidia.com/gpu": 1}, annotations={})
    return sign(pod, WHOLE, NODE, epoch=epoch)


def state_of(*pods):
    state = FakeState()
    state.ledger = Ledger(DEFAULT, trust=trusting())
    state.ledger.apply(NodeSeen(NODE))
    for each in pods:
        state.ledger.apply(PodSeen(each))
    return state


def test_loser_of_two_records_shows_one_event_that_names_the_winner():
    state, writer = state_of(bound("late", 3), bound("newer", 4)), FakeWriter()
    reporter = SupersededReporter(state, writer)

    reporter.look()
    reporter.look()

    ((pod, event),) = writer.events
    assert (pod, event.reason, event.warning) == ("late", "GpuTaken", True)
    assert "newer holds it by one of epoch 4" in event.note


def test_follower_reports_nothing():
    state, writer = state_of(bound("late", 3), bound("newer", 4)), FakeWriter()
    state.ready = False

    SupersededReporter(state, writer).look()

    assert writer.events == []
