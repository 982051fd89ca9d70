"""How long the openb trace takes from its files to its curves, to 130 percent load under FGD."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from time import thread_time

from slicewise.placement import POLICIES
from slicewise.sim.replay import replay
from slicewise.sim.trace_source import DATA, SourceError, find_openb


def measure_replay() -> Iterator[tuple[str, float]]:
    """One replay of the default trace with its recorded arrivals, fragmentation included."""
    named = os.environ.get(DATA)
    try:
        folder = find_openb(Path(named) if named else None)
    except SourceError as error:
        print(f"openb.replay.fgd skipped: {error}", file=sys.stderr)
        return
    start = thread_time()
    trace = folder.read_trace("default")
    arrivals = folder.read_arrivals(trace, 42)
    if arrivals is None:
        print("openb.replay.fgd skipped: no recorded arrivals", file=sys.stderr)
        return
    record = replay(trace, arrivals, POLICIES["fgd"])
    record.allocation_curve()
    record.fragmentation_curve()
    yield "seconds", thread_time() - start
