"""Charts of replays: allocation and fragmentation over arrived load, a line per policy."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from slicewise.model import SlicewiseError
from slicewise.sim.results import Summary, mean_curve, name_trace
from slicewise.sim.trace import Trace

# Told apart with any common form of colour blindness; the last ones are dashed as well.
_COLOURS: Final = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#999999",
)
_SUFFIXES: Final = (".png", ".svg")
# Below this load every policy takes everything, and the lines are one.
_ZOOM: Final = 70

Curves = Mapping[str, Sequence[float]]


class ChartError(SlicewiseError):
    """A chart that cannot be drawn."""


def check_chart(path: Path) -> None:
    """Refuse early what could not be drawn at the end."""
    if path.suffix not in _SUFFIXES:
        raise ChartError(f"{path}: expected a name that ends in .png or .svg")
    _load_pyplot()


def draw_chart(path: Path, trace: Trace, summaries: Sequence[Summary]) -> None:
    policies = dict.fromkeys(each.policy for each in summaries)
    allocation = {
        name: mean_curve([each.allocation for each in summaries if each.policy == name])
        for name in policies
    }
    fragmentation = {
        name: mean_curve([each.fragmentation for each in summaries if each.policy == name])
        for name in policies
    }
    pyplot = _load_pyplot()
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 5), layout="constrained")
    last = max((_last(curve) for curve in allocation.values()), default=0)
    _draw_lines(left, allocation)
    left.plot([0, last], [0, last], color="#bbbbbb", linestyle=":", label="all that arrived")
    left.set(title="GPU allocated", ylabel="percent of all GPUs")
    _zoom(left, allocation, last)
    _draw_lines(right, fragmentation)
    right.set(title="Idle GPU an average pod cannot use", ylabel="percent of all GPUs")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xlabel("arrived load, percent of all GPUs")
        axes.grid(color="#eeeeee")
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, loc="lower right")
    figure.suptitle(name_trace(trace))
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def _draw_lines(axes: Any, curves: Curves) -> None:
    for at, (name, curve) in enumerate(curves.items()):
        # A load that no arrival came near is bridged.
        known = [(load, value) for load, value in enumerate(curve) if not math.isnan(value)]
        axes.plot(
            *zip(*known, strict=True),
            color=_COLOURS[at % len(_COLOURS)],
            linestyle="-" if at < len(_COLOURS) else "--",
            linewidth=1.8,
            label=name,
        )


def _zoom(axes: Any, curves: Curves, last: int) -> None:
    if last <= _ZOOM:
        return
    seen = [value for curve in curves.values() for value in curve[_ZOOM : last + 1]]
    known = [value for value in seen if not math.isnan(value)]
    axes.set_xlim(_ZOOM, last)
    axes.set_ylim(min(known) - 1, max(known) + 1)


def _last(curve: Sequence[float]) -> int:
    return max((at for at, value in enumerate(curve) if not math.isnan(value)), default=0)


def _load_pyplot() -> Any:
    try:
        import matplotlib  # noqa: PLC0415 only pictures need it, and it is an extra

        matplotlib.use("agg")
        from matplotlib import pyplot  # noqa: PLC0415
    except ImportError as error:
        raise ChartError(
            "cannot draw: matplotlib is not installed; pip install 'slicewise[plot]'"
        ) from error
    return pyplot
