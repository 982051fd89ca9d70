"""Requests and replies as schedulers of every version form and read them, by one table."""

import asyncio
import json
from dataclasses import dataclass

import pytest

import builders
from extender import bodies
from fakes.cluster import FakeState, FakeWriter
from slicewise.extender.handlers import Extender
from slicewise.extender.routes import build_handler
from slicewise.httpd import HttpRequest

SHARE = {"slicewise.io/cores": 30, "slicewise.io/memory": 4096}
# "b" has GPUs that are taken, "c" has none: one may be helped by an eviction, the other never.
NODES = ["a", "b", "c"]


@dataclass(frozen=True)
class Scheduler:
    """How one range of versions speaks."""

    versions: str
    spell: object = str
    """How top-level keys are written."""
    sends_null: bool = True
    """Whether what is not set is sent as null, or left out."""
    whole_nodes_only: bool = False
    reads_unresolvable: bool = True


SCHEDULERS = [
    Scheduler("up to 1.5", str.lower, sends_null=False, whole_nodes_only=True,
              reads_unresolvable=False),
    Scheduler("1.6 to 1.16", reads_unresolvable=False),
    Scheduler("1.17 to 1.20", reads_unresolvable=False),
    Scheduler("1.21 to 1.36"),
]  # fmt: skip
SUPPORTED = [each for each in SCHEDULERS if not each.whole_nodes_only]
FORMS = [
    pytest.param(each, names, id=f"{each.versions}-{'names' if names else 'nodes'}")
    for each in SCHEDULERS
    for names in ((False,) if each.whole_nodes_only else (True, False))
]


def ask(path, body):
    """The decoded reply of a fresh extender, which must be 200."""
    state = FakeState(builders.node("a"), builders.node("b"), builders.node("c", gpus=0))
    record = '{"node":"b","containers":{"c0":[[0,"GPU-b-0",100,40960],[1,"GPU-b-1",100,40960]]}}'
    limits = {"slicewise.io/gpu": 2}
    busy = builders.pod(uid="busy", name="busy", limits=limits, node="b", priority=-5,
                        annotations={"slicewise.io/allocation": record})  # fmt: skip
    state.see(busy)
    writer = FakeWriter(builders.pod(limits=SHARE))
    handler = build_handler(Extender(state, writer))
    return run(handler, path, body)


def run(handler, path, body):
    async def once():
        request = HttpRequest("POST", path, {}, {}, json.dumps(body).encode(), lambda: None)
        answer = await handler(request)
        content = answer.body if hasattr(answer, "body") else b"".join(answer.pieces)
        assert answer.status == 200
        return json.loads(content)

    return asyncio.run(once())


def form(scheduler, **fields):
    """A request as this scheduler writes it."""
    given = {scheduler.spell(key): value for key, value in fields.items()}
    return {key: value for key, value in given.items() if value is not None or scheduler.sends_null}


def args(scheduler, names):
    pod = bodies.pod(SHARE)
    items = {"metadata": {}, "items": [bodies.node(name) for name in NODES]}
    if names:
        return form(scheduler, Pod=pod, Nodes=None, NodeNames=NODES)
    return form(scheduler, Pod=pod, Nodes=items, NodeNames=None)


def read_as_go(reply, *keys):
    """The fields as Go's decoder finds them: whatever the case, and the last one wins."""
    lowered = {key.lower(): value for key, value in reply.items()}
    return [lowered.get(key.lower()) for key in keys]


@pytest.mark.parametrize(("scheduler", "names"), FORMS)
def test_filter_reply_has_the_form_that_the_scheduler_looks_at(scheduler, names):
    reply = ask("/filter", args(scheduler, names))

    found, nodes, failed, error = read_as_go(reply, "NodeNames", "Nodes", "FailedNodes", "Error")
    assert error == ""
    if names:
        assert (found, nodes) == (["a"], None)
    else:
        assert found is None
        assert [item["metadata"]["name"] for item in nodes["items"]] == ["a"]
        assert nodes["items"][0] == bodies.node("a")
    assert sorted(failed) == ["b", "c"]
    assert all(isinstance(text, str) and text for text in failed.values())


@pytest.mark.parametrize(("scheduler", "names"), FORMS)
def test_node_that_no_eviction_helps_is_unresolvable_for_those_who_read_that(scheduler, names):
    reply = ask("/filter", args(scheduler, names))

    never, failed = read_as_go(reply, "FailedAndUnresolvableNodes", "FailedNodes")
    assert sorted(never) == ["c"]
    if not scheduler.reads_unresolvable:
        # They know the other list alone, so every refused node must stand there.
        assert set(never) <= set(failed)


@pytest.mark.parametrize(("scheduler", "names"), FORMS)
def test_scores_are_a_bare_list_of_whole_numbers_within_the_range(scheduler, names):
    reply = ask("/prioritize", args(scheduler, names))

    assert [read_as_go(entry, "Host")[0] for entry in reply] == NODES
    scores = [read_as_go(entry, "Score")[0] for entry in reply]
    assert all(type(score) is int and 0 <= score <= 10 for score in scores)


@pytest.mark.parametrize("scheduler", SUPPORTED, ids=lambda each: each.versions)
@pytest.mark.parametrize("short", [True, False], ids=["meta-victims", "victims"])
def test_preemption_is_read_in_both_forms_and_answered_in_the_short_one(scheduler, short):
    pods = [{"UID": "busy"}] if short else [{"metadata": {"name": "busy", "uid": "busy"}}]
    offered = {"b": {"Pods": pods, "NumPDBViolations": 0}}
    body = form(
        scheduler,
        Pod=bodies.pod(SHARE),
        NodeNameToVictims=None if short else offered,
        NodeNameToMetaVictims=offered if short else None,
    )

    (nodes,) = read_as_go(ask("/preempt", body), "NodeNameToMetaVictims")

    assert nodes == {"b": {"Pods": [{"UID": "busy"}], "NumPDBViolations": 0}}


@pytest.mark.parametrize("scheduler", SUPPORTED, ids=lambda each: each.versions)
def test_binding_is_answered_with_an_empty_error(scheduler):
    body = form(scheduler, PodName="p0", PodNamespace="default", PodUID="u0", Node="a")

    assert read_as_go(ask("/bind", body), "Error") == [""]


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda each: each.versions)
def test_null_and_missing_mean_the_same(scheduler):
    body = args(scheduler, names=not scheduler.whole_nodes_only)
    bare = {key: value for key, value in body.items() if value is not None}

    assert ask("/filter", bare) == ask("/filter", body)
