"""Which extender answers `why`, `what-if` and `defrag`, by flags."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from slicewise.cli.cluster_access import FILE, warn
from slicewise.cli.options import quota_label_options
from slicewise.dialects import QuotaLabels
from slicewise.extender.client.calls import ExtenderTarget
from slicewise.model import SlicewiseError
from slicewise.placement import read_policy

F = TypeVar("F", bound=Callable[..., Any])
URL: Final = "SLICEWISE_URL"


def target_options(command: F) -> F:
    """The flags that say which extender answers."""
    flags = (
        click.option("--url", envvar=URL, help=f"Ask the extender at this address [env {URL}]."),
        click.option(
            "--ca", type=FILE, help="With --url: PEM authority that its certificate must be from."
        ),
        click.option(
            "--cert", type=FILE, help="With --url: PEM client certificate and key to show it."
        ),
        click.option(
            "--service", help="Ask the extender behind this Service, as namespace/name:port."
        ),
        click.option(
            "--policy",
            default="default",
            show_default=True,
            help="Placement policy to assume where no extender is asked.",
        ),
    )
    command = quota_label_options(environment="SLICEWISE_")(command)
    for flag in reversed(flags):
        command = flag(command)
    return command


def read_target(flags: dict[str, Any]) -> ExtenderTarget:
    """Which extender to ask, taken out of a command's flags."""
    labels = QuotaLabels(flags.pop("model_label") or None, flags.pop("pool_label") or None)
    if flags["url"] and flags["service"]:
        raise click.UsageError("--url and --service are two ways to ask: pass one")
    try:
        read_policy(flags["policy"])
    except SlicewiseError as error:
        raise click.BadParameter(str(error), param_hint="--policy") from error
    return ExtenderTarget(
        **{key: flags.pop(key) for key in ("url", "ca", "cert", "service", "policy")},
        labels=labels,
        warn=warn,
    )
