"""The openb files: node and pod lists, recorded arrivals, and published curves.

Thousandths of a GPU become whole percent, rounded up where they must be, with a note.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from slicewise.model import (
    MAX_GPUS_PER_NODE,
    Constraints,
    ContainerRequest,
    Gpu,
    Host,
    MiB,
    MilliCpu,
    Node,
    Percent,
    Request,
    Share,
    TraceError,
)
from slicewise.sim.csv_rows import CsvRow, read_rows
from slicewise.sim.trace import ArrivalOrder, Trace, TracePod

NODES: Final = "openb_node_list_gpu_node.csv"
_PODS: Final = "openb_pod_list_"
_NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
# The lists say nothing of GPU memory, and no pod asks for any.
_GPU_MEMORY: Final = MiB(16384)
# How the published files spell our policies.
PUBLISHED: Final = {
    "random": "01-Random",
    "dot-product": "02-DotProd",
    "clustering": "03-GpuClustering",
    "packing": "04-GpuPacking",
    "best-fit": "05-BestFit",
    "fgd": "06-FGD",
}


@dataclass(frozen=True, slots=True)
class OpenbFolder:
    path: Path

    def trace_names(self) -> tuple[str, ...]:
        names = {
            file.name.removeprefix(_PODS).partition(".")[0]
            for file in self.path.glob(f"{_PODS}*.csv*")
        }
        return tuple(sorted(names, key=lambda name: (name != "default", name)))

    def read_trace(self, name: str) -> Trace:
        files = [self.path / f"{_PODS}{name}.csv.gz", self.path / f"{_PODS}{name}.csv"]
        found = next((file for file in files if file.exists()), None)
        if found is None:
            known = ", ".join(self.trace_names()) or f"no pod list in {self.path}"
            raise TraceError(f"trace {name!r}: expected one of {known}")
        return read_trace(self.path / NODES, found, name)

    def read_arrivals(self, trace: Trace, seed: int) -> ArrivalOrder | None:
        """The recorded arrivals and ranks of one run; None when there is no record."""
        path = self.path / "arrivals.csv.gz"
        if not path.exists():
            return None
        found: dict[str, list[int]] = {}
        for row in read_rows(path, ("trace", "seed", "kind", "values")):
            if row.text("trace") == trace.name and row.number("seed") == seed:
                limit = len(trace.pods if row.text("kind") == "pods" else trace.nodes)
                found[row.text("kind")] = _read_positions(row, limit)
        if "pods" not in found:
            return None
        ranks = found.get("ranks", [])
        if len(ranks) != len(trace.nodes):
            raise TraceError(
                f"{path.name}: {len(ranks)} ranks for trace {trace.name} seed {seed}: "
                f"expected {len(trace.nodes)}"
            )
        names = (node.name for node in trace.nodes)
        return ArrivalOrder(found["pods"], dict(zip(names, ranks, strict=True)))

    def read_published(self, name: str) -> dict[tuple[str, str, int], tuple[float, ...]]:
        """The curves of `published_<name>_discrete`, by trace, policy and seed."""
        path = self.path / f"published_{name}_discrete.csv.gz"
        if not path.exists():
            return {}
        spelt = {word: policy for policy, word in PUBLISHED.items()}
        curves = {}
        for row in read_rows(path, ("workload", "sc_policy", "seed", "0")):
            policy = spelt.get(row.text("sc_policy"))
            if policy is not None:
                key = (row.text("workload").removeprefix(_PODS), policy, row.number("seed"))
                curves[key] = tuple(_read_points(row))
        return curves


def read_trace(nodes: Path, pods: Path, name: str = "") -> Trace:
    machines = sorted(read_nodes(nodes), key=lambda node: node.name)
    listed, notes = read_pods(pods)
    listed.sort(key=lambda pod: pod.name)
    for what, path, names in (
        ("node", nodes, [node.name for node in machines]),
        ("pod", pods, [pod.name for pod in listed]),
    ):
        twice = next((a for a, b in pairwise(names) if a == b), None)
        if twice is not None:
            raise TraceError(f"{path.name}: {what} {twice!r} is listed twice")
    return Trace(name or pods.name.partition(".")[0], tuple(machines), tuple(listed), tuple(notes))


def read_nodes(path: Path) -> list[Node]:
    """The machines of a node list, in the order of the file."""
    return [_read_node(row) for row in read_rows(path, _NODE_COLUMNS)]


def read_pods(path: Path) -> tuple[list[TracePod], list[str]]:
    """The pods of a pod list in the order of the file, and what had to be rounded."""
    notes: list[str] = []
    return [_read_pod(row, notes) for row in read_rows(path, _POD_COLUMNS)], notes


def _read_node(row: CsvRow) -> Node:
    name, count = row.text("sn"), row.number("gpu")
    if not name:
        raise row.error("sn", "a node name")
    if count > MAX_GPUS_PER_NODE:
        raise row.error("gpu", f"at most {MAX_GPUS_PER_NODE} GPUs")
    model = row.text("model")
    if count and not model:
        raise row.error("model", "the model of the node's GPUs")
    gpus = tuple(Gpu(index, f"{name}-{index}", model, _GPU_MEMORY, index) for index in range(count))
    host = Host(MilliCpu(row.number("cpu_milli")), MiB(row.number("memory_mib")))
    return Node(name, gpus, host=host)


def _read_pod(row: CsvRow, notes: list[str]) -> TracePod:
    name, count, milli = row.text("name"), row.number("num_gpu"), row.number("gpu_milli")
    if not name:
        raise row.error("name", "a pod name")
    if count > MAX_GPUS_PER_NODE:
        raise row.error("num_gpu", f"at most {MAX_GPUS_PER_NODE} GPUs")
    if milli > 1000:
        raise row.error("gpu_milli", "at most 1000, of each GPU")
    if count and not milli:
        raise row.error("gpu_milli", "1 to 1000 beside num_gpu")
    percent = -(-milli // 10)
    if count and milli % 10:
        notes.append(
            f"{row.path.name} line {row.line}: gpu_milli={milli} counts as {percent} percent"
        )
    containers = (ContainerRequest("main", (Share(Percent(percent)),) * count),) if count else ()
    models = tuple(word for word in row.text("gpu_spec").split("|") if word)
    host = Host(MilliCpu(row.number("cpu_milli")), MiB(row.number("memory_mib")))
    return TracePod(name, Request(containers, Constraints(models=models), host))


def _read_positions(row: CsvRow, limit: int) -> list[int]:
    words: Sequence[str] = row.text("values").split()
    if any(not word.isdigit() or int(word) >= limit for word in words):
        raise row.error("values", f"positions below {limit}")
    return [int(word) for word in words]


def _read_points(row: CsvRow) -> Iterator[float]:
    for load in range(131):
        column = str(load)
        if column not in row.cells:
            return
        try:
            yield float(row.text(column) or "nan")
        except ValueError as error:
            raise row.error(column, "a number") from error
