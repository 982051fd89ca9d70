"""Our own routes, and how a scheduler calls them."""

from typing import Final

from slicewise.dialects.own.pods import CORES, GPU, MEMORY
from slicewise.dialects.shared.dialect import SchedulerPart
from slicewise.dialects.shared.routes import ExtenderConfig, ExtenderRoute, RouteOptions, Verb

SCHEDULER: Final = SchedulerPart(
    routes=(
        ExtenderRoute("/filter", Verb.FILTER),
        ExtenderRoute("/filter-dryrun", Verb.FILTER),
        ExtenderRoute("/place", Verb.FILTER, RouteOptions(places=True)),
        ExtenderRoute("/prioritize", Verb.PRIORITIZE),
        ExtenderRoute("/preempt", Verb.PREEMPT),
        ExtenderRoute("/bind", Verb.BIND),
    ),
    configs=(
        ExtenderConfig(
            "slicewise",
            "",
            # One node comes back, so there is nothing to score and no prioritize verb.
            {"filter": "place", "preempt": "preempt", "bind": "bind"},
            (GPU, CORES, MEMORY),
        ),
    ),
)
