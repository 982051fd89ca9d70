"""Where a trace comes from: files, a folder of trace data, or the sample in the package."""

from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from slicewise.dialects import DEFAULT
from slicewise.model import TraceError
from slicewise.sim.draw import cut_arrivals, draw_arrivals
from slicewise.sim.manifests import read_manifests
from slicewise.sim.openb import OpenbFolder, read_trace
from slicewise.sim.trace import ArrivalOrder, Trace

DATA: Final = "SLICEWISE_DATA"
"""The environment variable that names the folder of trace data."""
RECORDED_LOAD: Final = 130
_MANIFESTS: Final = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A trace, and the folder its recorded arrivals are in, if there are any."""

    trace: Trace
    folder: OpenbFolder | None = None

    def arrivals(self, seed: int, load: int) -> ArrivalOrder:
        """The recorded arrivals of this seed, or arrivals drawn with it."""
        recorded = None
        if self.folder is not None and load <= RECORDED_LOAD:
            recorded = self.folder.read_arrivals(self.trace, seed)
        if recorded is None:
            return draw_arrivals(self.trace, seed, load)
        return recorded if load == RECORDED_LOAD else cut_arrivals(self.trace, recorded, load)


class SourceError(TraceError):
    """The choice of files names no trace."""


def find_openb(data: Path | None) -> OpenbFolder:
    """The openb files in the folder of trace data, or in its subfolder `openb`."""
    if data is None:
        raise SourceError(f"no folder of trace data: pass --data, or set {DATA}")
    for path in (data, data / "openb"):
        folder = OpenbFolder(path)
        if folder.trace_names():
            return folder
    raise SourceError(f"no openb files in {data}: pass --data with their folder, or set {DATA}")


def read_files(nodes: Path | None, pods: Path | None) -> TraceSource:
    """The nodes and pods of these files: CSV in the openb form, or manifests."""
    given = [path for path in dict.fromkeys((nodes, pods)) if path is not None]
    manifests = [path.suffix in _MANIFESTS for path in given]
    if all(manifests):
        return TraceSource(read_manifests(given, DEFAULT))
    if any(manifests) or nodes is None or pods is None:
        raise SourceError("pass --nodes and --pods, both as CSV or both as YAML or JSON")
    return TraceSource(read_trace(nodes, pods))


def read_sample() -> Trace:
    """The small made-up cluster and workload that ship with Slicewise."""
    sample = files("slicewise.sim") / "sample"
    with as_file(sample / "nodes.yaml") as nodes, as_file(sample / "pods.yaml") as pods:
        return read_manifests((nodes, pods), DEFAULT, "sample")
