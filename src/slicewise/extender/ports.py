"""What the extender needs of the world: the cluster's state, a writer, and the time."""

from collections.abc import Callable

from slicewise.kube.writer import Writer
from slicewise.state.ports import State

Clock = Callable[[], float]
"""Seconds that never go back."""
WallClock = Callable[[], int]
"""Nanoseconds since 1970."""


__all__ = ["Clock", "State", "WallClock", "Writer"]
