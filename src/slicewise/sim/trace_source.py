"""Where a trace comes from, by the flags that name it."""

from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

import click

from slicewise.dialects import DEFAULT
from slicewise.sim.draw import cut_arrivals, draw_arrivals
from slicewise.sim.manifests import read_manifests
from slicewise.sim.openb import OpenbFolder, read_trace
from slicewise.sim.trace import ArrivalOrder, Trace

OPENB: Final = Path("..") / "shared" / "data" / "openb"
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


def read_source(
    nodes: Path | None, pods: Path | None, openb: Path | None, name: str | None
) -> TraceSource:
    """The files named, the openb folder named, or the sample that ships with Slicewise."""
    if nodes is not None or pods is not None:
        return TraceSource(_read_files(nodes, pods))
    if openb is not None or name is not None:
        folder = OpenbFolder(openb or OPENB)
        if not folder.path.is_dir():
            raise click.UsageError(
                f"no openb files in {folder.path}: pass --openb with the folder they are in"
            )
        return TraceSource(folder.read_trace(name or "default"), folder)
    return TraceSource(read_sample())


def read_sample() -> Trace:
    """The small made-up cluster and workload that ship with Slicewise."""
    sample = files("slicewise.sim") / "sample"
    with as_file(sample / "nodes.yaml") as nodes, as_file(sample / "pods.yaml") as pods:
        return read_manifests((nodes, pods), DEFAULT, "sample")


def _read_files(nodes: Path | None, pods: Path | None) -> Trace:
    given = [path for path in dict.fromkeys((nodes, pods)) if path is not None]
    manifests = [path.suffix in _MANIFESTS for path in given]
    if all(manifests):
        return read_manifests(given, DEFAULT)
    if any(manifests) or nodes is None or pods is None:
        raise click.UsageError("pass --nodes and --pods, both as CSV or both as YAML or JSON")
    return read_trace(nodes, pods)


def read_seeds(text: str) -> tuple[int, ...]:
    """Seeds as people write them: `42`, `42,44` or `42-51`."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise click.BadParameter(f"{text!r}: expected seeds like 42, 42,44 or 42-51")
        seeds.extend(range(int(first), int(last or first) + 1))
    if not seeds or len(seeds) > 1000:
        raise click.BadParameter(f"{text!r}: expected 1 to 1000 seeds")
    return tuple(seeds)
