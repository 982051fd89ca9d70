"""Scoring functions of the plain policies; higher is better, 0 to 100 where it has a scale.

Node scores give one number per row, GPU scores one per GPU. best-fit, dot-product, packing
and clustering follow the definitions that the published openb curves were measured with.
"""

from typing import Final

import numpy as np

from slicewise.model import FULL, NodeState, whole_gpus
from slicewise.placement.row_cache import RowValues
from slicewise.placement.scoring.scoring_input import ScoringInput, tightest
from slicewise.placement.tables import PLENTY, Floats, Ints, NodeTables

_CPU_NORM: Final = 128000.0
_GPU_NORM: Final = 8000.0
_LARGE_GPU: Final = 81920.0


def _cpu(scoring: ScoringInput) -> Ints:
    cpu: Ints = np.where(scoring.view.cpu >= PLENTY, 0, scoring.view.cpu)
    return cpu


def _idle_milli(scoring: ScoringInput) -> Ints:
    return scoring.view.idle * 10


def binpack(scoring: ScoringInput) -> Floats:
    """Fuller nodes first, by the mean of compute and memory allocated."""
    return 100.0 - _free_percent(scoring)


def spread(scoring: ScoringInput) -> Floats:
    return _free_percent(scoring)


def _free_percent(scoring: ScoringInput) -> Floats:
    view = scoring.view
    memory = view.memory.sum(axis=1)
    free = np.maximum(view.free_memory, 0).sum(axis=1)
    cores = view.idle / np.maximum(view.gpus, 1)
    percent: Floats = (cores + 100.0 * free / np.maximum(memory, 1)) / 2
    return percent


def best_fit(scoring: ScoringInput) -> Floats:
    """Least CPU and GPU left over after the pod."""
    cpu = (_cpu(scoring) - scoring.cpu) / _CPU_NORM
    gpu = (_idle_milli(scoring) - 10 * scoring.demand) / _GPU_NORM
    return np.trunc(100.0 * (1.0 - (0.5 * cpu + 0.5 * gpu)))


def dot_product(scoring: ScoringInput) -> Floats:
    """Nodes whose free resources look least like the request."""
    cpu = _cpu(scoring) / _CPU_NORM * (scoring.cpu / _CPU_NORM)
    gpu = _idle_milli(scoring) / _GPU_NORM * (10 * scoring.demand / _GPU_NORM)
    return np.trunc(100.0 * (1.0 - (cpu + gpu) / 2.0))


def packing(scoring: ScoringInput) -> Floats:
    """GPUs in use first, then idle GPUs of nodes in use, then small idle nodes."""
    view, group = scoring.view, scoring.group
    if group is None:
        return np.zeros(len(view.gpus))
    if group.whole:
        touched: Ints = np.full(len(view.gpus), group.count)
        partly = np.zeros(len(view.gpus))
    else:
        least = tightest(scoring)
        touched = np.where(least == FULL, group.count, 0)
        partly = np.maximum(100.0 - least * group.count // 10, 50.0)
    used = np.where(touched > 0, np.maximum(50 - touched, 33), partly)
    idle = np.maximum(33 - view.gpus, view.gpus)
    score: Floats = np.where(view.idle == FULL * view.gpus, idle, used).astype(np.float64)
    return score


def clustering(scoring: ScoringInput) -> Floats:
    """Nodes that already run pods of the same kind: shared, one GPU, two GPUs and so on."""
    if scoring.group is None:
        return np.zeros(len(scoring.view.gpus))
    bit = 1 << (scoring.group.count if scoring.group.whole else 0)
    mix = _mix(scoring.tables)[scoring.view.rows]
    own, other = (mix & bit) != 0, (mix & ~bit) != 0
    base = np.select([own & ~other, own, mix == 0], [75, 50, 25], 0)
    filled: Floats = np.trunc(25.0 * (_GPU_NORM - _idle_milli(scoring)) / _GPU_NORM)
    return filled + base.astype(np.float64)


def _mix(tables: NodeTables) -> Ints:
    """Which kinds of GPU pods each row runs, as bits."""
    mix = tables.derived.get("mix")
    if not isinstance(mix, RowValues):
        mix = tables.derived["mix"] = RowValues(tables, np.int64, _mix_of)
    return mix.current()


def _mix_of(state: NodeState) -> int:
    bits = 0
    for holding in state.holdings:
        if holding.charges:
            bits |= 1 << whole_gpus(holding.charges)
    return bits


def random(scoring: ScoringInput) -> Floats:
    """A different order for every pod, the same for the same seed and pod."""
    return _generator(scoring).random(len(scoring.tables.states))[scoring.view.rows]


def random_gpu(scoring: ScoringInput) -> Floats:
    """A different GPU for every pod, the same for the same seed and pod."""
    shape = (len(scoring.tables.states), scoring.ok.shape[1])
    return _generator(scoring).random(shape)[scoring.view.rows]


def _generator(scoring: ScoringInput) -> np.random.Generator:
    """The pod's own numbers; drawn for all rows, a row has the same whichever are looked at."""
    salt = list(scoring.salt.encode()) or [0]
    return np.random.Generator(np.random.PCG64([scoring.seed, *salt]))


def tight_gpu(scoring: ScoringInput) -> Floats:
    """GPUs with the least free first: compute, then memory; memory first if that is asked."""
    view = scoring.view
    cores = view.free_cores.astype(np.float64)
    if scoring.group is not None and scoring.group.cores == 0:
        # MiB and not parts of the GPU, whose GPUs may differ in size.
        return -(view.free_memory / _LARGE_GPU * 1000.0 + cores / 1e5)
    memory: Floats = view.free_memory / np.maximum(view.memory, 1)
    return -(cores + memory / 2.0)


def loose_gpu(scoring: ScoringInput) -> Floats:
    return -tight_gpu(scoring)


def load_gpu(scoring: ScoringInput) -> Floats:
    return 100.0 - scoring.view.load.astype(np.float64)


def load(scoring: ScoringInput) -> Floats:
    """Nodes with the least busy GPU among those that fit."""
    if scoring.group is None:
        return np.zeros(len(scoring.view.gpus))
    quiet = np.where(scoring.ok, 100.0 - scoring.view.load, 0.0)
    best: Floats = quiet.max(axis=1, initial=0.0)
    return best
