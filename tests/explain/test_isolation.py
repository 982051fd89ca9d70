"""What `why` says of isolation: the promise of the best place, and what to drop where none is."""

from dataclasses import replace

import builders
from fakes.cluster import FakeState
from slicewise.dialects.shared.isolation import ISOLATION
from slicewise.explain.explanation import PodInquiry, explain_pod
from slicewise.model import HOOKED, IsolationRules, IsolationTier, OfferedIsolation
from slicewise.state.queries import PodQueries

SHARE = {"slicewise.io/cores": 30, "slicewise.io/memory": 4096}
HOOK = OfferedIsolation((IsolationTier.HOOK,), (IsolationTier.HOOK,))


def why(node, rules=None, **annotations):
    state = FakeState(node)
    state.rules["default"] = rules or IsolationRules()
    queries = PodQueries(state)
    query = queries.build(builders.pod(limits=SHARE, annotations=annotations))
    names = [node.name]
    return explain_pod(PodInquiry.of(query, names, queries.screen(query, names)))


def isolated(offered=HOOK):
    node = builders.node(gpus=2)
    return replace(node, gpus=tuple(replace(gpu, isolation=offered) for gpu in node.gpus))


def test_best_place_is_told_with_what_it_promises():
    (told,) = why(isolated())["best"]["allocation"]

    assert told.endswith("isolation hook/hook")
    assert "isolation" not in why(builders.node())["best"]["allocation"][0]


def test_demand_that_no_gpu_meets_is_named_with_what_to_drop():
    answer = why(isolated(), **{ISOLATION: "driver"})
    (node,) = answer["nodes"]

    assert node["reason"] == "InsufficientIsolation"
    assert node["detail"] == "needs memory isolation driver, gpu 0, 1 offer hook"
    assert node["gpus"][0]["missing"] == ["not admitted by model, UUID, quota or isolation"]
    assert answer["smallestChange"]["change"] == "drop the annotation slicewise.io/isolation"


def test_floor_of_the_namespace_cannot_be_dropped():
    answer = why(builders.node(), IsolationRules(HOOKED))

    assert answer["nodes"][0]["reason"] == "InsufficientIsolation"
    assert "smallestChange" not in answer


def test_opt_out_that_is_not_allowed_says_so():
    answer = why(isolated(), **{ISOLATION: "none"})

    assert answer["nodes"][0]["reason"] == "IsolationNotAllowed"
    assert "slicewise.io/allow-unlimited=true" in answer["nodes"][0]["detail"]
