"""The routes of gpu-admission and of the fork's extender."""

from typing import Final

from slicewise.dialects.shared.dialect import SchedulerPart
from slicewise.dialects.shared.routes import ExtenderConfig, ExtenderRoute, RouteOptions, Verb
from slicewise.dialects.tkestack.pods import FORK

SCHEDULER: Final = SchedulerPart(
    routes=(
        ExtenderRoute("/scheduler/predicates", Verb.FILTER, RouteOptions(commits=True)),
        ExtenderRoute("/scheduler/filter", Verb.FILTER, may_commit=True),
        ExtenderRoute("/scheduler/bind", Verb.BIND),
    ),
    configs=(
        ExtenderConfig(
            "tkestack",
            "/scheduler",
            {"filter": "filter", "bind": "bind"},
            (FORK.core, FORK.memory),
            # The fork's users have their scheduler ignore both: nodes do not count them per GPU.
            ignored=True,
        ),
        ExtenderConfig("gpu-admission", "/scheduler", {"filter": "predicates"}, node_names=False),
    ),
)
