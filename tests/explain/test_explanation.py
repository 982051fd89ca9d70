"""What is said of each of many nodes, when the steps do not suffice for every change."""

import builders
from fakes.cluster import FakeState
from slicewise.explain.explanation import PodInquiry, explain_pod
from slicewise.state.queries import PodQueries

SIX = {"slicewise.io/gpu": 6, "slicewise.io/cores": 50, "slicewise.io/memory": 36864}


def test_every_node_has_its_numbers_though_changes_run_out_of_steps():
    names = [f"node-{at:02}" for at in range(30)]
    queries = PodQueries(FakeState(*(builders.node(name=name, gpus=4) for name in names)))
    query = queries.build(builders.pod(limits=SIX))

    answer = explain_pod(PodInquiry.of(query, names, queries.screen(query, names)))

    assert {each["detail"] for each in answer["nodes"]} == {"needs 6 GPUs, the node has 4"}
    assert answer["nodes"][0]["changes"]
    assert not answer["nodes"][-1]["changes"]
