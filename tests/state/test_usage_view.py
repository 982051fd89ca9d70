"""What top shows of isolation: what GPUs offer, and what records promise."""

from dataclasses import replace

import pytest

import builders
from slicewise.cluster import Ledger, NodeSeen, PodSeen
from slicewise.dashboard.rows import ModelNumbers, write_row
from slicewise.dialects import ALLOCATION, DEFAULT
from slicewise.dialects.shared.signed_record import write_signed_record
from slicewise.model import IsolationTier, OfferedIsolation, show_isolation
from slicewise.state.usage.usage_text import write_plain
from slicewise.state.usage.usage_view import describe_nodes, view_node
from strategies import place

HOOK = IsolationTier.HOOK
NODE = builders.node(gpus=[builders.gpu(0, isolation=OfferedIsolation((HOOK,), (HOOK,)))])


@pytest.fixture
def ledger():
    limits = {"slicewise.io/cores": 30, "slicewise.io/memory": 4096}
    pod = builders.pod(limits=limits, node="n0", version=1)
    request = DEFAULT.read_request(pod)
    promised = DEFAULT.add_terms(pod, request, place(request, NODE), NODE)
    text = write_signed_record(promised, NODE, epoch=1, now_ns=1)
    found = Ledger(DEFAULT)
    found.apply(NodeSeen(NODE))
    found.apply(PodSeen(replace(pod, annotations={ALLOCATION: text})))
    return found


def test_top_shows_what_is_offered_and_what_was_promised(ledger):
    view = view_node(ledger.snapshot().get("n0"), ledger, None)
    (gpu,) = describe_nodes([view])["nodes"][0]["gpus"]
    rows = [line.split() for line in write_plain([view]).splitlines()]

    assert (gpu["isolation"], gpu["containers"][0]["isolation"]) == ("hook/hook", "hook/hook")
    assert "ISOLATION" in rows[1]
    assert [row[-1] for row in rows[3:5]] == ["hook/hook", "hook/hook"]


def test_page_is_told_what_a_gpu_offers_and_nothing_of_those_that_offer_nothing(ledger):
    state = ledger.snapshot().get("n0")
    plain = replace(state, node=builders.node(gpus=1))

    assert b'"hook/hook"' in write_row(state, 0, ModelNumbers(), ())
    assert b"none" not in write_row(plain, 0, ModelNumbers(), ())


def test_whole_gpus_are_shown_as_whole():
    assert [show_isolation(100, None), show_isolation(30, None)] == ["whole", "none"]
