import pytest

import builders
from slicewise.dialects import DEFAULT
from slicewise.dialects.shared.limits import CARRIER
from slicewise.explain.suggestions import find_suggestions
from slicewise.model import NodeNotice, Reason
from slicewise.placement import (
    POLICIES,
    UNLIMITED,
    PlacementRequest,
    Planner,
    Screener,
    explain,
    feasible,
)

AGENT = '{"resources":{"slicewise.io/cores":"devices","slicewise.io/memory":"amount"}}'
ALONE = {"slicewise.io/memory": 4096}
BESIDE = {"slicewise.io/memory": 4096, "slicewise.io/cores": 30}


def notice(name, **annotations):
    gpus = '{"gpus":[{"index":0,"minor":0,"uuid":"GPU-0","model":"A10","memory":24576}]}'
    return NodeNotice(name, annotations={"slicewise.io/gpus": gpus, **annotations})


def cluster():
    """One node whose agent only counts memory, and one that gives GPUs for it."""
    return builders.snapshot(
        DEFAULT.read_node(notice("counts", **{"slicewise.io/agent": AGENT})),
        DEFAULT.read_node(notice("gives")),
    )


def question(limits):
    return PlacementRequest(DEFAULT.read_request(builders.pod(limits=limits)))


@pytest.mark.parametrize("policy", ["default", "binpack", "fgd"])
def test_pod_that_asks_by_a_counted_resource_alone_goes_elsewhere(policy):
    placement = Planner(POLICIES[policy]).place(cluster(), question(ALONE))

    assert placement.allocation.node == "gives"


def test_node_that_only_counts_says_so():
    asked = question(ALONE)
    screening = Screener(Planner().tables).screen(cluster(), asked, ["counts", "gives"])
    refusal = explain(cluster().get("counts"), asked.request, UNLIMITED)

    assert screening.reasons == {"counts": Reason.COUNTED}
    assert refusal.reason is Reason.COUNTED
    assert "slicewise.io/memory alone" in refusal.detail
    assert not feasible(cluster().get("counts"), asked.request, UNLIMITED)


def test_pod_that_asks_for_compute_beside_it_may_go_there():
    asked = question(BESIDE)

    assert Planner().place_on(cluster(), asked, "counts") is not None
    assert feasible(cluster().get("counts"), asked.request, UNLIMITED)


def test_pod_that_names_the_carrier_may_go_there_and_asks_for_nothing_more():
    asked = question({**ALONE, CARRIER: 1})

    assert Planner().place_on(cluster(), asked, "counts") is not None
    assert asked.request.containers == question(ALONE).request.containers


def test_carried_container_is_charged_by_its_limits_where_memory_is_only_counted():
    node = cluster().get("counts").node

    assert DEFAULT.read_limits(builders.pod(limits=ALONE), node) == ()
    (carried,) = DEFAULT.read_limits(builders.pod(limits={**ALONE, CARRIER: 1}), node)
    assert carried.most(node.gpus[0].memory) == (0, 4096)


def test_refused_pod_is_told_to_name_the_carrier():
    state = cluster().get("counts")

    changes = find_suggestions(state, question(ALONE), Reason.COUNTED)

    assert changes[0].steps == {"limits": {CARRIER: 1}}


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ({"slicewise.io/memory": 1}, {"slicewise.io/memory"}),
        ({"elasticgpu.io/gpu-memory": 1}, {"elasticgpu.io/gpu-memory"}),
        ({"elasticgpu.io/gpu-memory": 1, CARRIER: 1}, set()),
        ({"elasticgpu.io/gpu-memory": 1, "elasticgpu.io/gpu-core": 5}, set()),
        ({"elasticgpu.io/gpu-core": 5}, set()),
        ({"aliyun.com/gpu-mem": 1}, set()),
        ({"cpu": 1}, set()),
    ],
)
def test_resources_that_need_the_carrier_are_found(limits, found):
    request = DEFAULT.read_request(builders.pod(limits=limits))

    assert request.lone & DEFAULT.countable == found


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"resources":3}', '{"resources":{"a":1}}'])
def test_what_an_agent_says_badly_of_itself_counts_as_nothing(text):
    node = DEFAULT.read_node(notice("n", **{"slicewise.io/agent": text}))

    assert node.counted == frozenset()
    assert len(node.gpus) == 1
