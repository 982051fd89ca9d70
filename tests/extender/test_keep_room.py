"""Room that is kept for a pod while others are moved away."""

import asyncio
import json

import pytest

import builders
from extender.test_nominations import half
from fakes.cluster import FakeState, FakeWriter
from slicewise.cluster import PodGone
from slicewise.extender.handlers import Extender

WHOLE = {"slicewise.io/gpu": 1}


class Moving:
    """An extender on one node of two GPUs: one is shared by two pods, the other by one."""

    def __init__(self):
        self.state = FakeState(builders.node("a", gpus=2))
        self.extender = Extender(self.state, FakeWriter())
        self.waits = builders.pod(uid="waits", name="waits", limits=WHOLE)
        self.state.see(half(0, 0), half(0, 1), half(1, 0), self.waits)

    def keep(self, **args):
        body = {"Pod": "waits", "Node": "a", "Victims": ["h10"], **args}
        response = asyncio.run(self.extender.keep_room(json.dumps(body).encode()))
        return response.status, json.loads(response.body)

    def end(self, uid):
        self.state.ledger.apply(PodGone(uid))
        self.extender.decisions.nominations.on_pods(())

    def fits(self, pod):
        queries = self.extender.decisions.queries
        return queries.screen(queries.build(pod), ["a"]).fits == [True]


@pytest.fixture
def moving():
    return Moving()


def test_room_that_a_moved_pod_leaves_is_for_the_pod_that_waits_alone(moving):
    successor = builders.pod(uid="next", name="next", limits=half(0, 0).containers[0].limits)

    assert moving.keep() == (200, {})
    moving.end("h10")

    assert moving.fits(moving.waits)
    assert not moving.fits(successor)


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        pytest.param({"Pod": "nobody"}, 404, "no such pod waits", id="unknown-pod"),
        pytest.param({"Pod": "h00"}, 404, "no such pod waits", id="placed-pod"),
        pytest.param({"Victims": []}, 400, "expected 1 to", id="no-victims"),
        pytest.param({"Victims": "h10"}, 400, "Expected `array`", id="no-list"),
    ],
)
def test_request_that_names_nothing_to_keep_is_refused(moving, args, status, words):
    code, told = moving.keep(**args)

    assert code == status
    assert words in told["error"]
