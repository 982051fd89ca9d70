"""An agent, or somebody with its token, cannot cost the server more than a node's report."""

import asyncio

import pytest

from reports.values import gpu, node, pod
from slicewise.reports import ReportError, ReportReceiver, apply_delta
from slicewise.reports.messages import HEARTBEAT, MAX_PODS, FrameReader, ReportDelta, encode


class Line(asyncio.Transport):
    """A connection that notes whether it was closed."""

    closed = False

    def write(self, data):
        pass

    def close(self):
        self.closed = True


class Sink:
    """Counts what an agent says."""

    def __init__(self):
        self.heard = 0

    def heartbeat(self):
        self.heard += 1

    def replace(self, report):
        self.heard += 1

    def apply(self, delta):
        self.heard += 1

    def end(self):
        pass


@pytest.fixture
def scene():
    class Scene:
        now = 0.0
        line, sink = Line(), Sink()

    receiver = ReportReceiver("n1", Scene.sink, clock=lambda: Scene.now)
    receiver.connection_made(Scene.line)
    receiver.data_received(encode(node("n1")))
    Scene.hear = receiver.data_received
    return Scene


def test_agent_with_something_to_say_every_second_is_heard(scene):
    delta = encode(ReportDelta(pods=tuple(pod(f"p{at}") for at in range(250))))
    for _ in range(100):
        scene.now += 1
        scene.hear(delta)
        scene.hear(HEARTBEAT)

    assert scene.sink.heard == 201
    assert not scene.line.closed


def test_agent_that_never_pauses_is_hung_up_on(scene):
    for _ in range(300):
        scene.hear(HEARTBEAT)
        if scene.line.closed:
            break

    assert scene.line.closed
    assert scene.sink.heard <= 200


def test_agent_that_sends_too_much_is_hung_up_on(scene):
    piece = b"\x00\x0f\xff\xff" + b"x" * (64 << 10)
    sent = 0
    while not scene.line.closed:
        scene.hear(piece[:4] if sent == 0 else piece[4:])
        sent += len(piece)

    assert sent < 4 << 20


def test_pods_do_not_pile_up_beyond_what_a_node_runs():
    report = node("n1", pods=[pod(f"p{at}") for at in range(MAX_PODS)])

    with pytest.raises(ReportError, match="expected at most 1024"):
        apply_delta(report, ReportDelta(pods=(pod("one-more"),)))


def test_report_of_impossibly_many_gpus_is_refused(scene):
    scene.hear(encode(node("n1", gpus=tuple(gpu(f"GPU-{at}") for at in range(257)))))

    assert scene.line.closed
    assert scene.sink.heard == 1


def test_frame_that_comes_byte_by_byte_is_not_copied_each_time():
    frames, sent = FrameReader(), encode(node("n1", pods=[pod(f"p{at}") for at in range(200)]))
    rest = frames._rest

    found = [message for at in range(len(sent)) for message in frames.feed(sent[at : at + 1])]

    assert len(found) == 1
    assert frames._rest is rest
