"""Why rows refuse a request, for all rows at once: the reasons of `explain` without its details.

What no eviction can change depends on the node class alone and is checked once per class.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from slicewise.model import NodeState, Reason, Request
from slicewise.placement.explain import never
from slicewise.placement.groups import Group, fit_mask, whole_gpus
from slicewise.placement.quota_limits import QuotaLimits
from slicewise.placement.row_cache import RowValues
from slicewise.placement.tables import Bools, Ints, NodeTables, TableView

REASONS = tuple(Reason)
_AT = {reason: at for at, reason in enumerate(REASONS)}
_NONE = -1
_DERIVED = "uncertain"
_certain = attrgetter("certain")


@dataclass(frozen=True, slots=True)
class NodeQuery:
    """One request put to the rows of the tables; `admitted` of None is every GPU."""

    tables: NodeTables
    view: TableView
    request: Request
    limits: QuotaLimits
    groups: tuple[Group, ...]
    admitted: Bools | None  # (nodes, gpus)
    undecided: Bools  # (nodes,), rows that the steps of the decision did not reach


def read_reasons(query: NodeQuery, rows: Ints) -> list[Reason]:
    """The reason of each of these rows, all of which are known to refuse the request."""
    if not len(rows):
        return []
    found: Ints = np.full(len(rows), _NONE, dtype=np.int64)
    _fill_never(query, rows, found)
    view = query.view if len(rows) == len(query.view.rows) else query.view.take(rows)
    _fill_busy(query, rows, view, found)
    left = found == _NONE
    host = query.request.host
    found[left & (view.cpu < host.cpu)] = _AT[Reason.CPU]
    left = found == _NONE
    found[left & (view.host_memory < host.memory)] = _AT[Reason.HOST_MEMORY]
    left = found == _NONE
    found[left & query.undecided[rows]] = _AT[Reason.UNDECIDED]
    found[found == _NONE] = _AT[Reason.SCATTERED]
    return [REASONS[at] for at in found.tolist()]


def _fill_never(query: NodeQuery, rows: Ints, found: Ints) -> None:
    for members in _alike(query, rows):
        node = query.tables.states[int(rows[members[0]])].node
        refusal = never(NodeState.empty(node), query.request, query.limits)
        if refusal is not None:
            found[members] = _AT[refusal.reason]


def _alike(query: NodeQuery, rows: Ints) -> Iterator[Ints]:
    """Positions among these rows of nodes of one class that admit the same GPUs."""
    keys = query.view.node_class[rows]
    constraints = query.request.constraints
    if (constraints.uuids or constraints.uuids_refused) and query.admitted is not None:
        # UUIDs are not decided by the class.
        masks = np.packbits(query.admitted[rows], axis=1)
        numbers: dict[bytes, int] = {}
        found = [numbers.setdefault(mask.tobytes(), len(numbers)) for mask in masks]
        keys = keys * len(numbers) + np.array(found, dtype=np.int64)
    for each in np.unique(keys).tolist():
        yield np.flatnonzero(keys == each)


def _fill_busy(query: NodeQuery, rows: Ints, view: TableView, found: Ints) -> None:
    """What others hold: whole GPUs, compute or memory, by the first group that lacks it."""
    gpus = _usable(query, view)
    if query.admitted is not None:
        gpus &= query.admitted[rows]
    unread = _uncertain(query.tables)[rows]
    for group in query.groups:
        code = _lack(view, group, gpus)
        # As `explain` says it: the pod whose allocation cannot be read may be the cause.
        code[(code != _NONE) & unread] = _AT[Reason.UNREADABLE]
        left = found == _NONE
        found[left] = code[left]
    whole = whole_gpus(query.groups)
    if whole:
        lacking = (found == _NONE) & ((view.whole & gpus).sum(axis=1) < whole)
        found[lacking] = np.where(unread, _AT[Reason.UNREADABLE], _AT[Reason.WHOLE_GPUS])[lacking]
    topology = query.request.constraints.topology
    if topology is not None and topology.strict:
        idle = (view.whole & gpus).sum(axis=1) == gpus.sum(axis=1)
        left = found == _NONE
        found[left] = np.where(idle, _AT[Reason.TOPOLOGY], _AT[Reason.TOPOLOGY_BUSY])[left]


def _lack(view: TableView, group: Group, gpus: Bools) -> Ints:
    """What keeps the group off each row; -1 where nothing does."""
    code: Ints = np.full(len(gpus), _NONE, dtype=np.int64)
    count = (fit_mask(view, group) & gpus).sum(axis=1)
    if group.whole:
        code[count < group.count] = _AT[Reason.WHOLE_GPUS]
        return code
    cores = np.where(gpus, view.free_cores, -1).max(axis=1, initial=-1)
    memory = np.where(gpus, view.free_memory, -1).max(axis=1, initial=-1)
    code[count < group.count] = _AT[Reason.GPUS]
    none = count == 0
    code[none] = _AT[Reason.SCATTERED]
    code[none & (cores < group.cores)] = _AT[Reason.CORES]
    code[none & (memory < group.memory)] = _AT[Reason.MEMORY]
    return code


def _usable(query: NodeQuery, view: TableView) -> Bools:
    width = view.model.shape[1]
    table = np.zeros((len(query.tables.classes), width), dtype=np.bool_)
    for at, each in enumerate(query.tables.classes):
        table[at, : len(each.gpus)] = [gpu.usable for gpu in each.gpus]
    usable: Bools = table[view.node_class]
    return usable


def _uncertain(tables: NodeTables) -> Bools:
    """Which rows hold a pod whose allocation cannot be read."""
    known = tables.derived.get(_DERIVED)
    if not isinstance(known, RowValues):
        known = RowValues(tables, np.bool_, lambda state: not all(map(_certain, state.holdings)))
        tables.derived[_DERIVED] = known
    return known.current()
