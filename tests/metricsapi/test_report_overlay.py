import asyncio
import json

import pytest

import builders
from metricsapi.scene import Scene
from reports.values import gpu, node, pod
from slicewise.dialects import ALLOCATION, GPUS
from slicewise.metricsapi.report_overlay import ReportOverlay, follow_reports
from slicewise.model import Container, NodeNotice, Pod


def notice(count=2, **facts):
    return NodeNotice("n1", capacity={"nvidia.com/gpu": str(count)}, **facts)


def bound(name="a", count=1, **facts):
    main = Container("main", limits={"nvidia.com/gpu": str(count)})
    return Pod(f"uid-{name}", "ml", name, (main,), node="n1", **facts)


def overlay(*pods, gpus=None):
    scene = Scene()
    scene.tell(node(gpus=gpus or (gpu("GPU-a", index=0), gpu("GPU-b", index=1)), pods=pods))
    return scene, ReportOverlay(scene.registry)


def test_node_that_publishes_a_mere_count_gets_the_gpus_its_agent_reports():
    _, told = overlay()

    gpus = json.loads(told.complete_node(notice()).annotations[GPUS])["gpus"]

    assert [(gpu["uuid"], gpu["model"], gpu["health"]) for gpu in gpus] == [
        ("GPU-a", "Tesla T4", True),
        ("GPU-b", "Tesla T4", True),
    ]


def test_gpus_of_a_silent_node_are_not_well():
    scene, told = overlay()
    scene.seconds = 10.0
    scene.registry.sweep()

    gpus = json.loads(told.complete_node(notice()).annotations[GPUS])["gpus"]

    assert [gpu["health"] for gpu in gpus] == [False, False]


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(notice(annotations={GPUS: "x"}), id="own-inventory"),
        pytest.param(notice(count=8), id="shared-by-the-plugin"),
        pytest.param(NodeNotice("n1"), id="no-nvidia-plugin"),
        pytest.param(NodeNotice("n9", capacity={"nvidia.com/gpu": "2"}), id="no-agent"),
    ],
)
def test_other_nodes_are_left_as_they_are(shown):
    _, told = overlay()

    assert told.complete_node(shown) is shown


def test_pod_gets_the_record_of_what_the_kubelet_gave_it():
    _, told = overlay(pod("a", gpus=["GPU-b"]))

    record = json.loads(told.complete_pod(bound()).annotations[ALLOCATION])

    assert record["node"] == "n1"
    assert [entry[:2] for entry in record["containers"]["main"]] == [[1, "GPU-b"]]


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(bound("b"), id="not-reported-yet"),
        pytest.param(bound(annotations={ALLOCATION: "x"}), id="own-record"),
        pytest.param(builders.pod(), id="asks-for-other-things"),
    ],
)
def test_other_pods_are_left_as_they_are(shown):
    _, told = overlay(pod("a", gpus=["GPU-b"]))

    assert told.complete_pod(shown) is shown


def test_namesake_of_a_reported_pod_is_not_taken_for_it():
    _, told = overlay(pod("a", gpus=["GPU-b"], uid="another"))

    assert told.complete_pod(bound()).annotations == {}


class Looking:
    """A state that notes which nodes it was told to look at."""

    def __init__(self):
        self.looked = []

    def reread_node(self, name):
        self.looked.append(name)


def test_ledger_looks_again_at_nodes_that_told_something_new():
    async def scene():
        registry, state = Scene(), Looking()
        task = asyncio.create_task(follow_reports(registry.broadcaster, state))
        async with asyncio.timeout(20):
            while registry.broadcaster.watching < 2:
                await asyncio.sleep(0)
            registry.tell(node("n1", pods=[pod("a")]))
            registry.tell(node("n2"))
            while set(state.looked) != {"n1", "n2"}:
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

        assert registry.broadcaster.watching == 0

    asyncio.run(scene())
