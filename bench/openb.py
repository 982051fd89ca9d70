"""How long the openb trace takes from its files to its curves, to 130 percent load under FGD."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from time import thread_time

from slicewise.placement import POLICIES
from slicewise.sim.openb import OpenbFolder
from slicewise.sim.replay import replay

ROOT = Path(__file__).resolve().parents[1]


def measure_replay() -> Iterator[tuple[str, float]]:
    """One replay of the default trace with its recorded arrivals, fragmentation included."""
    path = Path(os.environ.get("SLICEWISE_OPENB") or ROOT.parent / "shared" / "data" / "openb")
    if not path.is_dir():
        print(f"openb.replay.fgd skipped: {path} is absent", file=sys.stderr)
        return
    start = thread_time()
    folder = OpenbFolder(path)
    trace = folder.read_trace("default")
    arrivals = folder.read_arrivals(trace, 42)
    if arrivals is None:
        print("openb.replay.fgd skipped: no recorded arrivals", file=sys.stderr)
        return
    record = replay(trace, arrivals, POLICIES["fgd"])
    record.allocation_curve()
    record.fragmentation_curve()
    yield "seconds", thread_time() - start
