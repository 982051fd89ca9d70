"""The cluster as arrays: one per quantity, one row per node, kept in step with snapshots.

Rows stand in the order in which ties are broken, so the first best row is the answer.
Arrays of shape (nodes, gpus) are laid out by column: sums over a node's GPUs stay fast.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from slicewise.model import FULL, Node, NodeState, Snapshot
from slicewise.placement.node_class import NodeClass, class_of

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

# A node that does not publish its CPU and memory is never short of them.
PLENTY: Final = 1 << 62
NO_GPU: Final = -1
# A GPU that nobody measures is neither idle nor busy.
UNKNOWN_LOAD: Final = 50
_LOG_LIMIT: Final = 1 << 16


@dataclass(slots=True)
class TableView:
    """The arrays that scoring reads: all rows of the tables, or some of them."""

    free_cores: Ints  # (nodes, gpus), percent; -1 where no GPU is usable
    free_memory: Ints  # (nodes, gpus), MiB; -1 where no GPU is usable
    memory: Ints  # (nodes, gpus), MiB the GPU has; 0 where there is no GPU
    whole: Bools  # (nodes, gpus), usable GPUs that no pod holds any part of
    size: Ints  # (nodes, gpus), number of the memory size
    model: Ints  # (nodes, gpus), number of the model; the last one where there is no GPU
    load: Ints  # (nodes, gpus), measured percent of use
    gpus: Ints  # (nodes,), GPUs on the node
    idle: Ints  # (nodes,), free percent over usable GPUs
    room: Ints  # (nodes,), the same, but no more of a GPU than its free memory allows
    whole_count: Ints  # (nodes,), whole GPUs free
    overcommitted: Bools  # (nodes,), whether more memory is held of a GPU than it has
    cpu: Ints  # (nodes,), free thousandths of a core
    host_memory: Ints  # (nodes,), free MiB of main memory
    node_class: Ints  # (nodes,), number of the node class
    rows: Ints  # (nodes,), row of the tables each row here came from

    def take(self, rows: Ints) -> "TableView":
        # A lone row needs no copy, which would cost more than most of what is done with it.
        at: Ints | slice = slice(int(rows[0]), int(rows[0]) + 1) if len(rows) == 1 else rows
        return TableView(*[getattr(self, name)[at] for name in TableView.__slots__])


class NodeTables:
    """Arrays over one snapshot after another; `sync` writes only the rows that changed."""

    def __init__(self, order: Mapping[str, int] | None = None) -> None:
        self._order = order
        self._snapshot = Snapshot()
        self._loads: dict[int, Sequence[int]] = {}
        self.measured: Mapping[str, Sequence[int]] = {}
        """Measured percent of use of each GPU, by node."""
        self.names: list[str] = []
        self.row_of: dict[str, int] = {}
        self.models: list[str] = []
        self.sizes: list[int] = []
        self.classes: list[NodeClass] = []
        self.linked: list[bool] = []
        self.states: list[NodeState] = []
        self.changes: list[int] = []
        self.epoch = 0
        self.derived: dict[str, object] = {}
        self._models: dict[str, int] = {}
        self._sizes: dict[int, int] = {}
        self._classes: dict[NodeClass, int] = {}
        self.view = _blank(0, 1)

    def sync(
        self, snapshot: Snapshot, load: Mapping[str, Sequence[int]] | None = None
    ) -> TableView:
        """The arrays of this snapshot, with measured load where it is known."""
        if snapshot is not self._snapshot:
            if snapshot.slots is self._snapshot.slots:
                self._follow(snapshot)
            else:
                self._rebuild(snapshot)
            self._snapshot = snapshot
        if load is not None:
            self._write_load(load)
        return self.view

    def _follow(self, snapshot: Snapshot) -> None:
        for old, new in zip(self._snapshot.chunks, snapshot.chunks, strict=True):
            if old is new:
                continue
            for before, after in zip(old, new, strict=True):
                if before is not after and after is not None:
                    if not self._known(after):
                        self._rebuild(snapshot)
                        return
                    self._write(self.row_of[after.node.name], after)

    def _known(self, state: NodeState) -> bool:
        """Whether the node's GPUs have their numbers and columns already."""
        if self.states[self.row_of[state.node.name]].node is state.node:
            return True
        return (
            len(state.node.gpus) <= self.view.model.shape[1]
            and class_of(state.node) in self._classes
        )

    def _rebuild(self, snapshot: Snapshot) -> None:
        order = self._order
        if order is None:
            states = sorted(snapshot, key=lambda state: state.node.name)
        else:
            last = len(order)
            states = sorted(
                snapshot, key=lambda state: (order.get(state.node.name, last), state.node.name)
            )
        self.names = [state.node.name for state in states]
        self.row_of = {name: row for row, name in enumerate(self.names)}
        self.states = states
        self._loads.clear()
        classes = [class_of(state.node) for state in states]
        self._number(states, classes)
        width = max((len(each.node.gpus) for each in states), default=1)
        self.view = _blank(len(states), max(width, 1))
        self.view.model.fill(NO_GPU)
        for row, (state, each) in enumerate(zip(states, classes, strict=True)):
            self._write(row, state, each)
        self._write_load(self.measured)
        self.changes.clear()
        self.epoch += 1

    def _number(self, states: Sequence[NodeState], classes: Sequence[NodeClass]) -> None:
        """Give models, sizes and node classes numbers that depend on what there is alone."""
        models = {gpu.model for state in states for gpu in state.node.gpus}
        self.models = sorted(models)
        self._models = {model: at for at, model in enumerate(self.models)}
        self.sizes = sorted({int(gpu.memory) for state in states for gpu in state.node.gpus})
        self._sizes = {size: at for at, size in enumerate(self.sizes)}
        self.classes = sorted(set(classes), key=lambda each: each.rank)
        self._classes = {each: at for at, each in enumerate(self.classes)}
        self.linked = [each.linked for each in self.classes]

    def _write(self, row: int, state: NodeState, of: NodeClass | None = None) -> None:
        view, node = self.view, state.node
        usable = [gpu.usable for gpu in node.gpus]
        cores = [
            FULL - used if ok else -1 for used, ok in zip(state.used_cores, usable, strict=True)
        ]
        memory = [
            gpu.memory - used if ok else -1
            for gpu, used, ok in zip(node.gpus, state.used_memory, usable, strict=True)
        ]
        whole = [
            ok and not used and not held
            for ok, used, held in zip(usable, state.used_cores, state.used_memory, strict=True)
        ]
        count = len(node.gpus)
        fresh = self.states[row].node is not node or not view.gpus[row]
        view.free_cores[row, :count] = cores
        view.free_memory[row, :count] = memory
        view.whole[row, :count] = whole
        view.idle[row] = sum(free for free in cores if free > 0)
        view.room[row] = sum(
            max(0, min(free, FULL * left // gpu.memory))
            for free, left, gpu in zip(cores, memory, node.gpus, strict=True)
        )
        view.whole_count[row] = sum(whole)
        view.overcommitted[row] = min(memory, default=0) < 0 and any(
            used > gpu.memory for gpu, used in zip(node.gpus, state.used_memory, strict=True)
        )
        host = node.host
        view.cpu[row] = PLENTY if host is None else host.cpu - state.cpu
        view.host_memory[row] = PLENTY if host is None else host.memory - state.host_memory
        if fresh:
            self._write_facts(row, state.node, of or class_of(node))
        self.states[row] = state
        if len(self.changes) >= _LOG_LIMIT:
            self.changes.clear()
            self.epoch += 1
        self.changes.append(row)

    def _write_facts(self, row: int, node: Node, of: NodeClass) -> None:
        view, gpus = self.view, node.gpus
        count = len(gpus)
        view.memory[row] = 0
        view.model[row] = NO_GPU
        view.free_cores[row, count:] = -1
        view.free_memory[row, count:] = -1
        view.whole[row, count:] = False
        view.memory[row, :count] = [gpu.memory for gpu in gpus]
        view.model[row, :count] = [self._models[gpu.model] for gpu in gpus]
        view.size[row, :count] = [self._sizes[int(gpu.memory)] for gpu in gpus]
        view.gpus[row] = count
        view.node_class[row] = self._classes[of]

    def measure(self, load: Mapping[str, Sequence[int]]) -> None:
        """Take this as all that is measured from now on; other nodes are of unknown load."""
        self.measured = load
        for row in [row for row in self._loads if self.names[row] not in load]:
            self.view.load[row] = UNKNOWN_LOAD
            del self._loads[row]
        self._write_load(load)

    def _write_load(self, load: Mapping[str, Sequence[int]]) -> None:
        for name, percents in load.items():
            row = self.row_of.get(name)
            if row is not None and self._loads.get(row) is not percents:
                self.view.load[row] = UNKNOWN_LOAD
                count = min(len(percents), int(self.view.gpus[row]))
                self.view.load[row, :count] = list(percents)[:count]
                self._loads[row] = percents


def _blank(nodes: int, gpus: int) -> TableView:
    def grid(dtype: Any, fill: int) -> NDArray[Any]:
        return np.full((nodes, gpus), fill, dtype=dtype, order="F")

    def column() -> Ints:
        return np.zeros(nodes, dtype=np.int64)

    return TableView(
        free_cores=grid(np.int64, -1),
        free_memory=grid(np.int64, -1),
        memory=grid(np.int64, 0),
        whole=grid(np.bool_, 0),
        size=grid(np.int64, 0),
        model=grid(np.int64, NO_GPU),
        load=grid(np.int64, UNKNOWN_LOAD),
        gpus=column(),
        idle=column(),
        room=column(),
        whole_count=column(),
        overcommitted=np.zeros(nodes, dtype=np.bool_),
        cpu=column(),
        host_memory=column(),
        node_class=column(),
        rows=np.arange(nodes, dtype=np.int64),
    )
