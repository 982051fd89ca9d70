"""`slicewise scheduler-config`: the scheduler's configuration, new or from an old policy file."""

import sys
from pathlib import Path

import click
import yaml

from slicewise.dialects import DEFAULT
from slicewise.dialects.scheduler_config import (
    ALL,
    SchedulerConfigError,
    build_config,
    convert_policy,
)

_FILE = click.Path(dir_okay=False, exists=True, path_type=Path)


@click.command("scheduler-config")
@click.option(
    "--dialect",
    type=click.Choice([ALL, *DEFAULT.extender_configs]),
    default="slicewise",
    show_default=True,
    help="System whose routes and resources are configured; all serves every system at once.",
)
@click.option("--url", help="Address of the extender [default: http://127.0.0.1:3456].")
@click.option("--scheduler-name", default="default-scheduler", show_default=True,
              help="Name that pods give as spec.schedulerName.")  # fmt: skip
@click.option(
    "--kubeconfig", help="Path of the scheduler's own kubeconfig, to write into the configuration."
)
@click.option(
    "--from",
    "source",
    type=_FILE,
    help="Convert this old file of kube-scheduler --policy-config-file.",
)
def scheduler_config(
    dialect: str, url: str | None, scheduler_name: str, kubeconfig: str | None, source: Path | None
) -> None:
    """Print a KubeSchedulerConfiguration for kube-scheduler --config."""
    if source is None:
        config = build_config(dialect, url or "http://127.0.0.1:3456", scheduler_name)
    else:
        try:
            config, notes = convert_policy(yaml.safe_load(source.read_text()), url)
        except yaml.YAMLError as error:
            raise click.ClickException(f"{source}: {error}") from error
        except SchedulerConfigError as error:
            raise click.ClickException(str(error)) from error
        for note in notes:
            print(f"# {note}", file=sys.stderr)
    if kubeconfig is not None:
        config["clientConnection"] = {"kubeconfig": kubeconfig}
    click.echo(yaml.safe_dump(config, sort_keys=False), nl=False)
