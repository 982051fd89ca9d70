"""`slicewise scheduler-config`: the scheduler's configuration, new or from a file of any age."""

from pathlib import Path

import click
import yaml

from slicewise.cli.render.terminal import echo, echo_text
from slicewise.diagnose.scheduler import read_document
from slicewise.dialects import DEFAULT
from slicewise.dialects.scheduler_config import (
    ALL,
    DEFAULT_NAME,
    ExtenderTls,
    SchedulerConfigError,
    build_config,
)
from slicewise.dialects.scheduler_documents import Conversion, convert_document

_FILE = click.Path(dir_okay=False, exists=True, path_type=Path)
_URL = "http://127.0.0.1:3456"


@click.command("scheduler-config", short_help="Print a configuration of kube-scheduler.")
@click.option(
    "--dialect",
    type=click.Choice([ALL, *DEFAULT.extender_configs]),
    default="slicewise",
    show_default=True,
    help="System whose routes and resources are configured; all serves every system at once.",
)
@click.option("--url", help=f"Address of the extender [default: {_URL}, or that of --from].")
@click.option("--scheduler-name", help="Name that pods give as spec.schedulerName "
              f"[default: {DEFAULT_NAME}, or that of --from].")  # fmt: skip
@click.option(
    "--kubeconfig", help="Path of the scheduler's own kubeconfig, to write into the configuration."
)
@click.option("--tls-ca", help="Path on the scheduler's host of the PEM authority of an https "
              "extender's certificate.")  # fmt: skip
@click.option("--tls-cert", help="Path there of the PEM certificate that the scheduler shows.")
@click.option("--tls-key", help="Path there of the PEM key of --tls-cert.")
@click.option(
    "--from",
    "source",
    type=_FILE,
    help="Convert this file: a Policy, a KubeSchedulerConfiguration of any version, or the "
    "extenders of one.",
)
def scheduler_config(
    dialect: str,
    url: str | None,
    scheduler_name: str | None,
    kubeconfig: str | None,
    source: Path | None,
    **files: str | None,
) -> None:
    """Print a KubeSchedulerConfiguration for kube-scheduler --config."""
    tls = ExtenderTls(files["tls_ca"], files["tls_cert"], files["tls_key"])
    how = Conversion(url, scheduler_name, tls)
    try:
        if source is None:
            config = build_config(dialect, url or _URL, scheduler_name or DEFAULT_NAME, tls)
        else:
            config = convert_document(read_document(source.read_text(), how.notes), how)
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{source}: {error}") from error
    except SchedulerConfigError as error:
        raise click.ClickException(f"{source}: {error}" if source else str(error)) from error
    for note in how.notes:
        echo(f"# {note}", err=True)
    if kubeconfig is not None:
        config["clientConnection"] = {**(config.get("clientConnection") or {}),
                                      "kubeconfig": kubeconfig}  # fmt: skip
    echo_text(yaml.safe_dump(config, sort_keys=False))
