"""What the extender needs of the world: the cluster's state, a writer, and the time."""

from collections.abc import Callable

from slicewise.kube.outcomes import ClusterWriter
from slicewise.state.ports import ClusterState

Clock = Callable[[], float]
"""Seconds that never go back."""
WallClock = Callable[[], int]
"""Nanoseconds since 1970."""


__all__ = ["Clock", "ClusterState", "ClusterWriter", "WallClock"]
