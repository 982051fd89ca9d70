"""The `slicewise` command: one file per verb, each loaded only when it is called.

A node agent must not carry the simulator's arrays in its memory.
"""

from typing import Final

import click

from slicewise import __version__
from slicewise.cli.lazy_group import CLUSTER_COMMANDS, PLAYGROUND_COMMANDS, LazyGroup

_VERBS: Final = {
    **CLUSTER_COMMANDS,
    "agent": "slicewise.cli.agent:agent",
    "compare": "slicewise.cli.compare:compare",
    "dashboard": "slicewise.cli.dashboard:dashboard",
    "extender": "slicewise.cli.extender:extender",
    "metrics-api": "slicewise.cli.metrics_api:metrics_api",
    "inspect-gpushare": "slicewise.cli.inspect_gpushare:main",
    "scheduler-config": "slicewise.cli.scheduler_config:scheduler_config",
    "simulate": "slicewise.cli.simulate:simulate",
}


@click.group(
    cls=LazyGroup,
    verbs=_VERBS,
    extras=PLAYGROUND_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="slicewise")
def main() -> None:
    """Share NVIDIA GPUs between Kubernetes pods."""
