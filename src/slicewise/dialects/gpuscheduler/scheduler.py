"""nvidia-gpu-scheduler's routes; its users' scheduler binds by itself and does without us."""

from typing import Final

from slicewise.dialects.shared.dialect import SchedulerPart
from slicewise.dialects.shared.routes import ExtenderConfig, ExtenderRoute, RouteOptions, Verb

_PATH: Final = "/apis/metrics.nvidia.com/v1alpha1/schedule"
_OPTIONS: Final = RouteOptions(bad_body=400, counts_free=True, holds=True)

SCHEDULER: Final = SchedulerPart(
    routes=(
        ExtenderRoute(f"{_PATH}/filter", Verb.FILTER, _OPTIONS),
        ExtenderRoute(f"{_PATH}/prioritize", Verb.PRIORITIZE, _OPTIONS),
        ExtenderRoute(f"{_PATH}/preempt", Verb.PREEMPT, _OPTIONS),
    ),
    configs=(
        ExtenderConfig(
            "gpuscheduler",
            _PATH,
            {"filter": "filter", "prioritize": "prioritize", "preempt": "preempt"},
            ignorable=True,
        ),
    ),
)
