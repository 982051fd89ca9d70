"""What a move costs the future, in GPUs: the default policy.

Every cost of putting a pod somewhere is expressed in GPUs that will be missed later, worked out
from what pods of this cluster tend to ask for:

- slot: what the GPU's leftover was worth before, less what it is worth after;
- toll: for breaking into a GPU that nobody uses, the chance that no partner comes to fill it;
- cpu: GPUs that will stay idle because the node's CPU runs out before its GPUs do, and where CPU
  is short in the whole cluster, room that pods can no longer use for want of CPU beside it;
- scarcity: room taken on nodes that some pods depend on and few nodes can replace;
- block: sets of whole GPUs broken up that pods with several GPUs are waiting for;
- order: nodes fill up in one fixed order, smallest first, so that the last ones drain.

The cheapest move wins.
"""

from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from slicewise.model import FULL
from slicewise.placement.groups import Group, fit_mask
from slicewise.placement.row_cache import RowCache
from slicewise.placement.scoring.price_tables import PriceTables
from slicewise.placement.scoring.scoring_input import ScoringInput
from slicewise.placement.tables import PLENTY, Floats, Ints, NodeTables, TableView

T = TypeVar("T", bound=np.generic)
K = TypeVar("K")
V = TypeVar("V")
_ORDER: Final = 0.02
_FULLER: Final = 0.1
_MOST_SCARCITY: Final = 9.0
_BLOCK: Final = 1 << 13
# Of how many kinds of shares prices are kept: fewer where there are very many GPUs.
_MOST_KEPT: Final = 32
_LEAST_KEPT: Final = 4
_KEPT_CELLS: Final = 1 << 22
_MOST_ONCE: Final = 256


def price(scoring: ScoringInput) -> Floats:
    """Scores of rows, for whole GPUs or for no GPU."""
    prices = _prices(scoring)
    count = 0 if scoring.group is None else scoring.group.count
    cost = _of_node(scoring, prices)
    if scoring.group is not None and len(prices.rare_share):
        cost += _scarcity(scoring, prices)[scoring.view.node_class] * _taken(scoring)
    return -100.0 * (cost + _of_blocks(scoring, prices, count))


def price_gpu(scoring: ScoringInput) -> Floats:
    """Scores of GPUs, for one share."""
    prices, group = _prices(scoring), scoring.group
    assert group is not None
    kept = _find_share_prices(scoring, prices, group) if scoring.fresh else None
    cost = _of_share(scoring, prices, group) if kept is None else kept.current()
    if len(prices.rare_share):
        cost = cost + (_scarcity(scoring, prices)[scoring.view.node_class] * _taken(scoring))
    if prices.blocks:
        broken = _of_blocks(scoring, prices, 1)
        cost = cost + np.where(scoring.view.whole.T, broken, 0.0)
    scores: Floats = -100.0 * cost
    return scores.T


class SharePrices:
    """What one share costs on every GPU by its node alone, worked out again for changed rows."""

    def __init__(self, tables: NodeTables, prices: PriceTables, group: Group, cpu: int) -> None:
        self._tables, self._prices = tables, prices
        self._group, self._cpu = group, cpu
        self._costs: Floats = np.zeros((0, 0))
        self._cache = RowCache(tables, self._rebuild)

    def current(self) -> Floats:
        """The costs by GPU and row, infinite where the share does not fit."""
        self._cache.refresh()
        return self._costs

    def _rebuild(self, rows: Ints) -> None:
        whole = 2 * len(rows) >= len(self._tables.names)
        view = self._tables.view if whole else self._tables.view.take(rows)
        costs = _of_share(
            ScoringInput(
                tables=self._tables,
                view=view,
                group=self._group,
                cpu=self._cpu,
                ok=fit_mask(view, self._group),
                feasible=np.ones(len(view.rows), dtype=np.bool_),
                workload=self._prices.workload,
            ),
            self._prices,
            self._group,
        )
        if whole:
            self._costs = costs
        else:
            self._costs[:, rows] = costs


def _find_share_prices(
    scoring: ScoringInput, prices: PriceTables, group: Group
) -> SharePrices | None:
    """What is kept of such a share, from the second time that it is asked for."""
    key = (group.count, group.cores, group.memory, scoring.cpu)
    known = prices.shares.pop(key, None)
    if not isinstance(known, SharePrices):
        if key not in prices.asked_once:
            _drop_oldest(prices.asked_once, _MOST_ONCE)
            prices.asked_once[key] = None
            return None
        del prices.asked_once[key]
        room = _KEPT_CELLS // max(scoring.ok.size, 1)
        _drop_oldest(prices.shares, min(_MOST_KEPT, max(_LEAST_KEPT, room)))
        known = SharePrices(scoring.tables, prices, group, scoring.cpu)
    prices.shares[key] = known
    return known


def _drop_oldest(entries: dict[K, V], most: int) -> None:
    """Make room for one more entry."""
    while len(entries) >= most:
        del entries[next(iter(entries))]


def _of_share(scoring: ScoringInput, prices: PriceTables, group: Group) -> Floats:
    """What a share costs on each GPU, by column and row, that only its own node decides."""
    view = scoring.view
    node = _of_node(scoring, prices)
    may = scoring.ok & scoring.feasible[:, None]
    count, width = view.whole.shape
    costs = np.full((width, count), np.inf)
    # Few nodes are looked at all at once, many column by column, so that they stay in the cache.
    step = max(1, _BLOCK // max(count, 1))
    for first in range(0, width, step):
        block = slice(first, first + step)
        at = np.flatnonzero(may[:, block].T)
        rows = at if step == 1 else at % count
        cost = _of_slots(view, prices, group, block, at)
        cost += node.take(rows)
        cost += np.where(_flat(view.whole[:, block]).take(at), prices.toll, 0.0)
        costs[block].reshape(-1)[at] = cost
    return costs


def _of_slots(view: TableView, prices: PriceTables, group: Group, block: slice, at: Ints) -> Floats:
    """The worth that a share takes from the leftovers of these GPUs of some columns."""
    size = _flat(view.size[:, block]).take(at)
    cores = _flat(view.free_cores[:, block]).take(at)
    memory = _flat(view.free_memory[:, block]).take(at)
    lost = prices.worth.of(size, cores, memory)
    lost -= prices.worth.of(size, cores - group.cores, memory - group.memory)
    # Of leftovers that are worth the same, the smaller one is the smaller loss.
    lost += 1e-6 * cores
    return lost


def _flat(gpus: NDArray[T]) -> NDArray[T]:
    """All GPUs in one row, column by column."""
    return gpus.T.reshape(-1)


def _of_node(scoring: ScoringInput, prices: PriceTables) -> Floats:
    """What the move costs wherever on the node it goes, that only the node decides."""
    view = scoring.view
    cost: Floats = _FULLER * view.room / (FULL * np.maximum(view.gpus, 1))
    cost += _ORDER * prices.position[view.rows]
    if prices.cpu.per_gpu:
        cost += _of_cpu(scoring, prices, _taken(scoring))
    return cost


def _taken(scoring: ScoringInput) -> Floats:
    """GPUs that the pod takes of each row, by what it takes most of."""
    group = scoring.group
    if group is None:
        return np.zeros(len(scoring.view.rows))
    part = np.full(len(scoring.view.rows), group.cores / FULL)
    if group.memory:
        largest = np.maximum(scoring.view.memory.max(axis=1), 1)
        part = np.maximum(part, np.minimum(group.memory / largest, 1.0))
    return part * group.count


def _of_cpu(scoring: ScoringInput, prices: PriceTables, taken: Floats) -> Floats:
    """Room that the move leaves without CPU beside it, or with CPU that had lacked GPUs."""
    view = scoring.view
    room = view.room / FULL
    change = _stranded(room - taken, view.cpu - scoring.cpu, prices)
    change -= _stranded(room, view.cpu, prices)
    if not prices.filled_nodes:
        # Nobody has asked for a whole node yet. Somebody may, and then an untouched node is worth
        # more than a better balance of CPU on it.
        change = np.where(view.whole_count == view.gpus, np.maximum(change, 0.0), change)
    return np.where(view.cpu >= PLENTY // 2, 0.0, change)


def _stranded(room: Floats, cpu: Ints, prices: PriceTables) -> Floats:
    """GPUs' worth of room that CPU would not suffice for if average pods filled the node.

    Where CPU is short, what is left of it has to fit pods one by one: room counts as stranded
    for those that ask for more than the node has.
    """
    stranded: Floats = np.maximum(0.0, room - cpu / prices.cpu.per_gpu)
    if prices.cpu.shortage:
        stranded += prices.cpu.shortage * np.maximum(0.0, room) * prices.refused(cpu)
    return stranded


def _scarcity(scoring: ScoringInput, prices: PriceTables) -> Floats:
    """Per node class, the demand of choosy pods waiting for each GPU's room there."""
    tables = scoring.tables
    classes = len(tables.classes)
    room = np.bincount(tables.view.node_class, weights=tables.view.room, minlength=classes) / FULL
    inside = np.maximum(np.where(prices.rare, room, 0.0).sum(axis=1), 1e-9)
    pressure = prices.rare_share * room.sum() / inside
    shares: Floats = np.where(prices.rare, pressure[:, None], 0.0).sum(axis=0)
    shares = np.minimum(shares - shares.min(), _MOST_SCARCITY)
    return shares


def _of_blocks(scoring: ScoringInput, prices: PriceTables, count: int) -> Floats:
    """Cost of breaking up sets of whole GPUs that pods of several GPUs need, when few are left."""
    whole, everywhere = scoring.view.whole_count, scoring.tables.view
    cost = np.zeros(len(whole))
    if not count:
        return cost
    room = float(everywhere.room.sum()) / FULL
    for size, share in prices.blocks:
        intact = int((everywhere.whole_count // size).sum())
        need = min(1.0, room * share / size / intact) if intact else 1.0
        broken = size * (whole // size - (whole - count) // size) - count
        cost += need * share * np.maximum(0, broken)
    return cost


def _prices(scoring: ScoringInput) -> PriceTables:
    tables = scoring.tables
    prices = tables.derived.get("prices")
    if (
        not isinstance(prices, PriceTables)
        or prices.workload is not scoring.workload
        or prices.epoch != tables.epoch
    ):
        prices = tables.derived["prices"] = PriceTables(tables, scoring.workload)
    return prices
