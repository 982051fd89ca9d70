"""elastic-gpu's routes: the verbs under /scheduler, and the page of what is free."""

import json
from typing import Final

from slicewise.dialects.elastic.pods import CURRENT, PERCENT
from slicewise.dialects.shared.dialect import SchedulerPart
from slicewise.dialects.shared.routes import ExtenderConfig, ExtenderRoute, SnapshotRoute, Verb
from slicewise.model import FULL, Snapshot


def show_status(snapshot: Snapshot, _: str | None = None) -> dict[str, str]:
    """What is free and what there is per GPU, under both of elastic's resource names."""
    gpus = {
        state.node.name: [
            {
                "CoreAvailable": state.free_cores(at),
                "MemoryAvailable": state.free_memory(at),
                "CoreTotal": FULL,
                "MemoryTotal": gpu.memory,
            }
            for at, gpu in enumerate(state.node.gpus)
        ]
        for state in sorted(snapshot, key=lambda state: state.node.name)
        if state.node.gpus
    }
    # The original sends the inner document as a text.
    text = json.dumps(gpus, separators=(",", ":"))
    return dict.fromkeys(CURRENT.asking, text)


SCHEDULER: Final = SchedulerPart(
    routes=(
        # The first and the last are tkestack's as well.
        ExtenderRoute("/scheduler/filter", Verb.FILTER, may_commit=True),
        ExtenderRoute("/scheduler/priorities", Verb.PRIORITIZE),
        ExtenderRoute("/scheduler/bind", Verb.BIND),
    ),
    configs=(
        ExtenderConfig(
            "elastic",
            "/scheduler",
            {"filter": "filter", "prioritize": "priorities", "bind": "bind"},
            (*reversed(CURRENT.asking), PERCENT.core),
        ),
    ),
    views=(SnapshotRoute("/scheduler/status", show_status),),
)
