"""What several groups of shares come to on all rows at once, before any row is searched.

`possible` drops the rows that sums alone refuse, `pack` finds those on which the groups fit
tightest first, and `FreeTables` tells which of the rest are alike.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from slicewise.model import FULL, Role
from slicewise.placement.groups import Group, fit_mask, whole_gpus
from slicewise.placement.search import FreeGpu, FreeTable
from slicewise.placement.tables import Bools, Ints, TableView

# One number a GPU: percent, MiB, whether nobody uses it, and its place; it sorts as `FreeGpu` does.
_WHOLE: Final = 1 << 6
_MEMORY_SHIFT: Final = 7
_MEMORY: Final = (1 << 42) - 1
_CORES_SHIFT: Final = 49
_NONE: Final = 1 << 62
# Groups and sizes that are counted one by one; of more, some.
_MOST_COUNTED: Final = 8


def possible(view: TableView, groups: Sequence[Group], admitted: Bools | None) -> Bools:
    """The rows that counting does not refuse."""
    able: Bools = np.ones(len(view.rows), dtype=np.bool_)
    for group in groups[:_MOST_COUNTED]:
        room = fit_mask(view, group)
        if admitted is not None:
            room &= admitted
        able &= np.count_nonzero(room, axis=1) >= group.count
    running = [group for group in groups if group.role is not Role.INIT]
    if not running or not able.any():
        return able
    whole = whole_gpus(groups)
    if whole:
        idle = view.whole if admitted is None else view.whole & admitted
        able &= np.count_nonzero(idle, axis=1) >= whole
    parts = [group for group in running if not group.whole]
    cores = np.maximum(view.free_cores, 0)
    if admitted is not None:
        cores = np.where(admitted, cores, 0)
    asked = [(group.cores, group.count) for group in parts]
    able &= _enough(cores, [*asked, (int(FULL), whole)])
    if any(group.memory for group in parts):
        memory = np.where(cores >= min(group.cores for group in parts), view.free_memory, 0)
        able &= _enough(np.maximum(memory, 0), [(group.memory, group.count) for group in parts])
    return able


def _enough(free: Ints, asked: Sequence[tuple[int, int]]) -> Bools:
    """The rows that have as much, and whose GPUs can be cut into as many pieces as large."""
    able: Bools = free.sum(axis=1) >= sum(amount * count for amount, count in asked)
    sizes = sorted({amount for amount, count in asked if amount and count})
    for least in sizes[:: -(-len(sizes) // _MOST_COUNTED) or 1]:
        number = sum(count for amount, count in asked if amount >= least)
        able &= (free // least).sum(axis=1) >= number
    return able


class FreeTables:
    """What is free on some rows, tightest GPU first: rows that are alike have equal keys."""

    def __init__(self, view: TableView, admitted: Bools | None) -> None:
        ok = (view.free_cores >= 0) & (view.free_memory >= 0)
        if admitted is not None:
            ok &= admitted
        keys = (view.free_cores << _CORES_SHIFT) + (view.free_memory << _MEMORY_SHIFT)
        keys = np.where(ok, keys + np.where(view.whole, _WHOLE, 0), _NONE)
        self.keys = np.sort(np.ascontiguousarray(keys), axis=1)

    def __len__(self) -> int:
        return len(self.keys)

    def key(self, row: int) -> bytes:
        return bytes(self.keys[row])

    def table(self, row: int) -> FreeTable:
        return tuple(
            FreeGpu(key >> _CORES_SHIFT, key >> _MEMORY_SHIFT & _MEMORY, bool(key & _WHOLE))
            for key in self.keys[row].tolist()
            if key != _NONE
        )


def pack(tables: FreeTables, groups: Sequence[Group]) -> Bools:
    """The rows on which the groups fit when each takes the tightest GPUs.

    It is the way that `find` tries first, so that it finds those without going back.
    """
    # By column, which keeps every sum and comparison of a row's GPUs fast.
    keys = np.array(tables.keys.T, order="C")
    keys += np.where(keys == _NONE, -1 - _NONE, np.arange(len(keys))[:, None])
    now, early = keys, keys.copy()
    able: Bools = np.ones(len(tables), dtype=np.bool_)
    taken: dict[int, Bools] = {}
    for group in groups:
        free = early if group.role is Role.INIT else now
        room = _room(free, group)
        if group.container in taken:
            room &= ~taken[group.container]
        able &= np.count_nonzero(room, axis=0) >= group.count
        if not able.any():
            break
        chosen = _tightest(free, room, group.count)
        taken[group.container] = chosen | taken.get(group.container, chosen)
        if group.role is not Role.INIT:
            _charge(now, group, chosen)
        if group.role is Role.SIDECAR:
            _charge(early, group, chosen)
    return able


def _room(keys: Ints, group: Group) -> Bools:
    room: Bools = keys >= group.cores << _CORES_SHIFT
    if group.memory:
        room &= (keys >> _MEMORY_SHIFT & _MEMORY) >= group.memory
    if group.whole:
        room &= (keys & _WHOLE) != 0
    return room


def _tightest(keys: Ints, room: Bools, count: int) -> Bools:
    """The GPUs with least free, of those with room."""
    left = np.where(room, keys, _NONE)
    chosen: Bools = np.zeros(room.shape, dtype=np.bool_)
    for _ in range(count):
        least = left == left.min(axis=0)
        chosen |= least
        left[least] = _NONE
    chosen &= room
    return chosen


def _charge(keys: Ints, group: Group, chosen: Bools) -> None:
    place = _WHOLE - 1
    if group.whole:
        np.copyto(keys, keys & place, where=chosen)
        return
    taken = (group.cores << _CORES_SHIFT) + (group.memory << _MEMORY_SHIFT)
    np.copyto(keys, (keys & ~_WHOLE) - taken, where=chosen)
