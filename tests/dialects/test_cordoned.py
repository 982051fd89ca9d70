import pytest

import builders
from slicewise.cluster import Feed, Ledger, PodSeen
from slicewise.dialects import CORDONED, DEFAULT, GPUS, write_gpus
from slicewise.model import NodeNotice


def notice(text, version=1):
    annotations = {GPUS: write_gpus(builders.node("n0", 3)), CORDONED: text}
    return NodeNotice("n0", annotations=annotations, version=version)


@pytest.mark.parametrize(
    ("text", "cordoned"),
    [
        pytest.param("", [], id="none"),
        pytest.param("GPU-n0-1", [1], id="uuid"),
        pytest.param("2", [2], id="index"),
        pytest.param(" GPU-n0-0 ,2,", [0, 2], id="both-with-blanks"),
        pytest.param("GPU-gone,9", [], id="gpus-that-left"),
    ],
)
def test_cordoned_gpus_are_read_by_uuid_or_index(text, cordoned):
    node = DEFAULT.read_node(notice(text))

    assert [gpu.index for gpu in node.gpus if gpu.cordoned] == cordoned
    assert [gpu.index for gpu in node.gpus if not gpu.usable] == cordoned


def test_pods_on_a_cordoned_gpu_stay_counted():
    ledger, feed = Ledger(DEFAULT), Feed()
    record = '{"containers":{"c0":[[1,"GPU-n0-1",30,4096]]},"node":"n0"}'
    pod = builders.pod(
        limits={"slicewise.io/cores": 30, "slicewise.io/memory": 4096},
        node="n0",
        annotations={"slicewise.io/allocation": record},
    )
    for event in (*feed.on_node(notice("")), PodSeen(pod), *feed.on_node(notice("1", 2))):
        ledger.apply(event)

    state = ledger.snapshot().get("n0")
    assert state.used_cores == (0, 30, 0)
    assert not state.node.gpus[1].usable
    assert ledger.problems() == ()
