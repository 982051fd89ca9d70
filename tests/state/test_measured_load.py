import asyncio
import json

import pytest

import builders
from fakes.cluster import FakeState, FakeWriter
from slicewise.extender.handlers import Extender
from slicewise.extender.load_reader import LoadReader
from slicewise.placement import NodeTables, PlacementRequest, Planner, read_policy
from slicewise.reports import GpuReport, MeasuredUse, NodeReport
from slicewise.state.usage.measured_load import LoadSmoother, MeasuredLoad
from slicewise.state.usage.node_reports import ReportedNode

NODES = (builders.node("a", 2), builders.node("b", 2))


def reported(silent=False, **percents):
    """Nodes whose GPUs are as busy as that; None is a GPU that could not be asked."""
    return {
        name: ReportedNode(
            NodeReport(
                node=name,
                gpus=tuple(
                    GpuReport(
                        uuid=f"GPU-{name}-{at}",
                        model="m",
                        index=at,
                        use=None if percent is None else MeasuredUse(0, percent),
                    )
                    for at, percent in enumerate(given)
                ),
            ),
            silent,
        )
        for name, given in percents.items()
    }


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_load_rises_at_once_and_falls_slowly():
    smoother = LoadSmoother()
    seen = []
    for now, percent in ((0, 0), (15, 100), (30, 0), (60, 0), (600, 0)):
        smoother.take(reported(a=[percent]), now)
        seen.append(round(smoother.of("a")["GPU-a-0"]))

    assert seen[0] == 0
    assert seen[1] > 90
    assert seen[2] > 75
    assert seen[3] > 50
    assert seen[4] < 5


def test_tenant_that_bursts_is_busy_between_its_bursts():
    smoother = LoadSmoother()
    for now in range(0, 300, 5):
        smoother.take(reported(a=[100 if now % 60 == 0 else 0]), now)

    assert smoother.of("a")["GPU-a-0"] > 40


def test_silent_agent_and_lost_metrics_api_are_forgotten():
    load = MeasuredLoad(Clock())
    snapshot = builders.snapshot(*NODES)

    assert set(load.take(reported(a=[1, 2], b=[3, 4]), snapshot)) == {"a", "b"}
    silent = reported(silent=True, b=[3, 4])
    assert set(load.take({**reported(a=[1, 2]), **silent}, snapshot)) == {"a"}
    assert load.take(None, snapshot) == {}


def test_gpu_that_could_not_be_asked_is_of_unknown_load():
    load = MeasuredLoad(Clock())

    assert load.take(reported(a=[None, 7]), builders.snapshot(*NODES)) == {"a": (50, 7)}


def test_nodes_that_are_measured_no_more_are_of_unknown_load_to_the_engine():
    tables = NodeTables()
    planner = Planner(read_policy("load"), tables=tables)
    snapshot = builders.snapshot(*NODES)
    wanted = PlacementRequest(builders.fraction())
    tables.measure({"a": (90, 90), "b": (20, 10)})
    assert planner.place(snapshot, wanted).allocation.gpus == (1,)
    tables.measure({"a": (40, 90)})

    placement = planner.place(snapshot, wanted)

    assert (placement.allocation.node, placement.allocation.gpus) == ("a", (0,))


def test_load_outlives_a_change_of_nodes():
    tables = NodeTables()
    planner = Planner(read_policy("load"), tables=tables)
    tables.sync(builders.snapshot(NODES[0]))
    tables.measure({"a": (90, 90), "b": (20, 10)})

    placement = planner.place(builders.snapshot(*NODES), PlacementRequest(builders.fraction()))

    assert placement.allocation.node == "b"


class Source:
    def __init__(self, *answers):
        self.answers = list(answers)

    async def read(self):
        return self.answers.pop(0)


def test_extender_decides_by_what_the_metrics_api_reports_and_explains_it():
    state = FakeState(*NODES, policy="load")
    state.take_load = state.planner().tables.measure
    limits = {"slicewise.io/cores": 10, "slicewise.io/memory": 100}
    extender = Extender(state, FakeWriter(builders.pod(limits=limits)))
    reader = LoadReader(Source(reported(a=[95, 80], b=[60, 5])), state, Clock())
    asyncio.run(reader.look())

    told = asyncio.run(extender.explain(b"", {"pod": "default/p0"}))

    answer = json.loads(told.body)
    assert answer["best"]["node"] == "b"
    assert "gpu 1" in answer["best"]["allocation"][0]
    gpus = {each["node"]: [gpu["loadPercent"] for gpu in each["gpus"]] for each in answer["nodes"]}
    assert gpus == {"a": [95, 80], "b": [60, 5]}


@pytest.mark.parametrize("answers", [(None,), (None, None)])
def test_missing_metrics_api_is_logged_once(answers, caplog):
    state = FakeState(*NODES)
    state.take_load = state.planner().tables.measure
    reader = LoadReader(Source(*answers), state, Clock())
    for _ in answers:
        asyncio.run(reader.look())

    said = [each for each in caplog.messages if "load is not measured" in each]
    assert len(said) == 1
    assert "no metrics API answers" in said[0]
