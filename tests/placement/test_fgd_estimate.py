"""First decisions on a shape never seen, beside fragmentation as it is defined, GPU by GPU."""

from math import exp
from random import Random

import pytest

import builders
from slicewise.model import FULL, NodeState, model_admitted
from slicewise.placement import POLICIES, NodeTables, PlacementRequest, Planner, PodShape, Workload
from slicewise.placement.scoring.fgd import FragmentationTable
from slicewise.placement.scoring.fgd_estimate import MoveEstimate

MODELS = ("NVIDIA A100-SXM4-40GB", "Tesla T4")
NODES = 120


def cluster(seed):
    """Nodes half full of shares, of two models, some with a sick GPU, some of unknown CPU."""
    chance, states = Random(seed), []
    for at in range(NODES):
        model = chance.choice(MODELS)
        gpus = [
            builders.gpu(i, model=model, uuid=f"{at}-{i}", healthy=chance.random() > 0.05)
            for i in range(chance.choice([4, 8]))
        ]
        host = builders.host(chance.choice([8000, 32000])) if chance.random() > 0.1 else None
        state = NodeState.empty(builders.node(f"n{at:03}", gpus=gpus, host=host))
        for i in range(len(gpus)):
            cores = chance.choice([0, 0, 10, 25, 50, 50, 75, 90, 100])
            if cores:
                held = builders.holding(f"{at}-{i}", builders.piece(i, cores, 1))
                state = state.hold(held)
        states.append(state)
    return builders.snapshot(*states)


def workload(seed):
    chance = Random(seed)
    shapes = {
        PodShape(
            chance.choice([1000, 4000, 7000, 16000]),
            chance.choice([0, 10, 25, 33, 50, 75, 100]),
            1,
            models=chance.choice([(), (), (), ("t4",)]),
        ): chance.randrange(1, 9)
        for _ in range(24)
    }
    wide = {PodShape(8000, FULL, 2): 3, PodShape(16000, FULL, 8): 1}
    return Workload({**shapes, **wide, PodShape(2000): 5, PodShape(24000): 2})


def fragmentation(free, cpu, gpus, target):
    """Thousandths of a GPU that an average pod cannot use, each case summed in order."""
    idle, sums = sum(max(each, 0) for each in free) * 10.0, [0.0] * 6
    for shape, weight in target:
        enough = cpu >= shape.cpu
        fits = sum(each >= shape.cores for each in free) >= shape.count
        refused = (shape.models or shape.models_refused) and not any(
            model_admitted(gpu.model, shape.models, shape.models_refused) for gpu in gpus
        )
        lost = weight * idle
        if not shape.count:
            sums[3 if enough else 4] += lost
        elif refused:
            sums[5] += lost
        elif not enough:
            sums[2 if fits else 0] += lost
        elif not fits:
            sums[1] += lost
        else:
            small = sum(max(each, 0) for each in free if each < shape.cores)
            sums[1] += weight * (small * 10.0)
    return ((((sums[0] + sums[1]) + sums[2]) + sums[3]) + sums[4]) + sums[5]


def plain_grades(state, target, cores, cpu):
    """The score of each GPU of a node for one share; of idle GPUs all have the first one's."""
    gpus, host = state.node.gpus, state.node.host
    free = [
        FULL - used if gpu.usable else -1 for gpu, used in zip(gpus, state.used_cores, strict=True)
    ]
    room = (1 << 62) if host is None else host.cpu - state.cpu
    before = fragmentation(free, room, gpus, target)
    grades, idle = [], None
    for at, each in enumerate(free):
        if each < cores:
            grades.append(-1)
            continue
        if state.untouched(at) and idle is not None:
            grades.append(idle)
            continue
        after = fragmentation([*free[:at], each - cores, *free[at + 1 :]], room - cpu, gpus, target)
        grades.append(int(100.0 * (1.0 / (1.0 + exp(-((before - after) / 1000.0))))))
        if state.untouched(at):
            idle = grades[-1]
    return grades


@pytest.mark.parametrize("seed", range(4))
def test_scores_of_a_shape_never_seen_are_those_of_the_definition(seed):
    snapshot, mix = cluster(seed), workload(seed)
    tables = NodeTables()
    tables.sync(snapshot)
    fragments = FragmentationTable(tables, mix)
    fragments.refresh()
    for cores, cpu in ((0, 500), (7, 3000), (25, 1000), (50, 4000), (60, 9000)):
        found = fragments.grades(1, cores, cpu).tolist()
        for row, state in enumerate(tables.states):
            width = len(state.node.gpus)
            assert found[row][:width] == plain_grades(state, mix.target, cores, cpu)


def test_first_decision_takes_the_first_best_gpu_of_the_definition():
    snapshot, mix = cluster(9), workload(9)
    request = builders.request([builders.share(35, 1)], host=builders.host(1500))

    placement = Planner(POLICIES["fgd"], mix).place(snapshot, PlacementRequest(request))

    best = max(
        (
            (score, -at, -gpu)
            for at, state in enumerate(sorted(snapshot, key=lambda each: each.node.name))
            if state.node.host is None or state.node.host.cpu - state.cpu >= 1500
            for gpu, score in enumerate(plain_grades(state, mix.target, 35, 1500))
        ),
    )
    assert (placement.score, placement.allocation.node, placement.allocation.gpus) == (
        best[0], f"n{-best[1]:03}", (-best[2],),
    )  # fmt: skip


def test_more_kinds_of_denied_shapes_than_are_worth_a_table_have_no_estimate(monkeypatch):
    tables = NodeTables()
    tables.sync(cluster(1))
    monkeypatch.setattr("slicewise.placement.scoring.fgd_estimate._MOST_WEIGHTS", 10)
    fragments = FragmentationTable(tables, workload(1))
    fragments.refresh()

    assert MoveEstimate.of(fragments.target, fragments.denied) is None
    assert (
        fragments.grades(1, 25, 1000).tolist()[0][:4]
        == plain_grades(tables.states[0], fragments.workload.target, 25, 1000)[:4]
    )
