"""The toy's extender routes, and its page of who is where."""

from slicewise.dialects.shared.dialect import SchedulerPart
from slicewise.dialects.shared.routes import (
    ExtenderConfig,
    ExtenderRoute,
    SnapshotRoute,
    Verb,
)
from slicewise.model import Snapshot
from toy.pods import SLICES


def inspect(snapshot: Snapshot, name: str | None) -> dict[str, list[str]]:
    """The pods of every node, or of one."""
    return {
        state.node.name: [f"{each.namespace}/{each.name}" for each in state.holdings]
        for state in snapshot
        if name in (None, state.node.name)
    }


SCHEDULER = SchedulerPart(
    routes=(
        ExtenderRoute("/toy/filter", Verb.FILTER),
        ExtenderRoute("/toy/bind", Verb.BIND),
    ),
    configs=(ExtenderConfig("toy", "/toy", {"filter": "filter", "bind": "bind"}, (SLICES,)),),
    views=(SnapshotRoute("/toy/inspect", inspect, by_node=True),),
)
