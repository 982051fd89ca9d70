"""Scoring functions of the plain policies; higher is better, 0 to 100 where it has a scale.

Node scores give one number per row, GPU scores one per GPU. best-fit, dot-product, packing
and clustering follow the definitions that the published openb curves were measured with.
"""

from typing import Final

import numpy as np

from slicewise.model import FULL, whole_gpus
from slicewise.placement.row_cache import RowCache
from slicewise.placement.scoring_input import ScoringInput, tightest
from slicewise.placement.tables import PLENTY, Floats, Ints, NodeTables

_CPU_NORM: Final = 128000.0
_GPU_NORM: Final = 8000.0


def _cpu(ask: ScoringInput) -> Ints:
    cpu: Ints = np.where(ask.view.cpu >= PLENTY, 0, ask.view.cpu)
    return cpu


def _idle_milli(ask: ScoringInput) -> Ints:
    return ask.view.idle * 10


def binpack(ask: ScoringInput) -> Floats:
    """Fuller nodes first, by the mean of compute and memory promised."""
    return 100.0 - _free_percent(ask)


def spread(ask: ScoringInput) -> Floats:
    """Emptier nodes first."""
    return _free_percent(ask)


def _free_percent(ask: ScoringInput) -> Floats:
    view = ask.view
    memory = view.memory.sum(axis=1)
    free = np.maximum(view.free_memory, 0).sum(axis=1)
    cores = view.idle / np.maximum(view.gpus, 1)
    percent: Floats = (cores + 100.0 * free / np.maximum(memory, 1)) / 2
    return percent


def best_fit(ask: ScoringInput) -> Floats:
    """Least CPU and GPU left over after the pod."""
    cpu = (_cpu(ask) - ask.cpu) / _CPU_NORM
    gpu = (_idle_milli(ask) - 10 * ask.demand) / _GPU_NORM
    return np.trunc(100.0 * (1.0 - (0.5 * cpu + 0.5 * gpu)))


def dot_product(ask: ScoringInput) -> Floats:
    """Nodes whose free resources look least like the request."""
    cpu = _cpu(ask) / _CPU_NORM * (ask.cpu / _CPU_NORM)
    gpu = _idle_milli(ask) / _GPU_NORM * (10 * ask.demand / _GPU_NORM)
    return np.trunc(100.0 * (1.0 - (cpu + gpu) / 2.0))


def packing(ask: ScoringInput) -> Floats:
    """GPUs in use first, then idle GPUs of nodes in use, then small idle nodes."""
    view, group = ask.view, ask.group
    if group is None:
        return np.zeros(len(view.gpus))
    if group.whole:
        touched: Ints = np.full(len(view.gpus), group.count)
        partly = np.zeros(len(view.gpus))
    else:
        least = tightest(ask)
        touched = np.where(least == FULL, group.count, 0)
        partly = np.maximum(100.0 - least * group.count // 10, 50.0)
    used = np.where(touched > 0, np.maximum(50 - touched, 33), partly)
    idle = np.maximum(33 - view.gpus, view.gpus)
    score: Floats = np.where(view.idle == FULL * view.gpus, idle, used).astype(np.float64)
    return score


def clustering(ask: ScoringInput) -> Floats:
    """Nodes that already run pods of the same kind: shared, one GPU, two GPUs and so on."""
    if ask.group is None:
        return np.zeros(len(ask.view.gpus))
    bit = 1 << (ask.group.count if ask.group.whole else 0)
    mix = _mix(ask.tables)[ask.view.rows]
    own, other = (mix & bit) != 0, (mix & ~bit) != 0
    base = np.select([own & ~other, own, mix == 0], [75, 50, 25], 0)
    filled: Floats = np.trunc(25.0 * (_GPU_NORM - _idle_milli(ask)) / _GPU_NORM)
    return filled + base.astype(np.float64)


class _Mix:
    """Which kinds of GPU pods each row runs, as bits."""

    def __init__(self, tables: NodeTables) -> None:
        self._tables = tables
        self.bits: Ints = np.zeros(0, dtype=np.int64)
        self.cache = RowCache(tables, self._rebuild)

    def _rebuild(self, rows: Ints) -> None:
        if len(self.bits) != len(self._tables.names):
            self.bits = np.zeros(len(self._tables.names), dtype=np.int64)
        for row in rows.tolist():
            bits = 0
            for holding in self._tables.states[row].holdings:
                if holding.charges:
                    bits |= 1 << whole_gpus(holding.charges)
            self.bits[row] = bits


def _mix(tables: NodeTables) -> Ints:
    mix = tables.derived.get("mix")
    if not isinstance(mix, _Mix):
        mix = tables.derived["mix"] = _Mix(tables)
    mix.cache.refresh()
    return mix.bits


def random(ask: ScoringInput) -> Floats:
    """A different order for every pod, the same for the same seed and pod."""
    return _generator(ask).random(len(ask.view.rows))


def random_gpu(ask: ScoringInput) -> Floats:
    """A different GPU for every pod, the same for the same seed and pod."""
    return _generator(ask).random(ask.ok.shape)


def _generator(ask: ScoringInput) -> np.random.Generator:
    salt = list(ask.salt.encode()) or [0]
    return np.random.Generator(np.random.PCG64([ask.seed, *salt]))


def tight_gpu(ask: ScoringInput) -> Floats:
    """GPUs with the least free first: compute, then memory; memory first if that is asked."""
    view = ask.view
    cores = view.free_cores.astype(np.float64)
    memory: Floats = view.free_memory / np.maximum(view.memory, 1)
    if ask.group is not None and ask.group.cores == 0:
        return -(memory * 1000.0 + cores / 1000.0)
    return -(cores + memory / 2.0)


def loose_gpu(ask: ScoringInput) -> Floats:
    """GPUs with the most free first."""
    return -tight_gpu(ask)


def load_gpu(ask: ScoringInput) -> Floats:
    """GPUs that were measured least busy first."""
    return 100.0 - ask.view.load.astype(np.float64)


def load(ask: ScoringInput) -> Floats:
    """Nodes with the least busy GPU among those that fit."""
    if ask.group is None:
        return np.zeros(len(ask.view.gpus))
    quiet = np.where(ask.ok, 100.0 - ask.view.load, 0.0)
    best: Floats = quiet.max(axis=1, initial=0.0)
    return best
