"""`slicewise agent`: what runs on every GPU node, under its own flags and the originals'."""

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Any, Final

import click
import yaml

from slicewise import __version__
from slicewise.cli.goflags import GoCommand, go_switch, klog_flags
from slicewise.cli.logs import LEVELS, configure_logs, read_level
from slicewise.cli.options import read_address, read_service_name
from slicewise.dialects import DEFAULT
from slicewise.dialects.gpushare.names import GIB, MIB
from slicewise.dialects.shared.injection import GpuManagerPaths
from slicewise.httpd import ServerSettings
from slicewise.model import SlicewiseError
from slicewise.nodeagent.configuration import NodeFlags, read_scaling
from slicewise.nodeagent.gpus.health import RecoveryPolicy
from slicewise.nodeagent.plugin.offers import MOST_UNITS
from slicewise.nodeagent.run import NODE_CONFIG, AgentOptions, ReportTarget, run_agent
from slicewise.nodeagent.settings import DIALECTS, AgentSettings, IdentityMode, Paths
from slicewise.nodeagent.usage.sampler import INTERVAL_SECONDS

DEFAULT_ADDRESS: Final = "127.0.0.1:5678"
_PREFIX: Final = "SLICEWISE_AGENT"
_UNITS: Final = {"gib": GIB.memory_unit, "mib": MIB.memory_unit}
_PATH = click.Path(path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)


def _load_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Take defaults from a file of flags without their dashes."""
    if path is None:
        return
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise click.BadParameter(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise click.BadParameter(f"{path}: expected flags and their values")
    names = {option.lstrip("-"): each.name for each in ctx.command.params for option in each.opts}
    for key in document:
        if key not in names:
            raise click.BadParameter(f"{path}: {key!r}: expected a flag of this command")
    ctx.default_map = {str(names[key]): value for key, value in document.items()}


@click.command(cls=GoCommand, context_settings={"auto_envvar_prefix": _PREFIX})
@click.option("--config-file", type=_FILE, is_eager=True, expose_value=False,
              callback=_load_config, help="YAML of these flags, without their dashes.")  # fmt: skip
@click.option("--node-name", "--hostname-override", "--nodeName", envvar="NODE_NAME",
              help="[default: the machine's name]")  # fmt: skip
@click.option("--kubeconfig", "--kubeconf", type=_FILE, help="Kubeconfig of the API server.")
@click.option("--address", help=f"host:port of metrics and health [default: {DEFAULT_ADDRESS}].")
@click.option("--nvml", default="library", show_default=True,
              help="library, library:FILE, simulated or simulated:FILE.")  # fmt: skip
@click.option("--dialects", default=",".join(DIALECTS), show_default=True,
              help="Systems whose resources are offered.")  # fmt: skip
@click.option("--identity", type=click.Choice(["auto", "cdi", "match"]), default="auto",
              show_default=True, help="How the owner of units is known.")  # fmt: skip
@click.option("--device-plugins", "--device-plugin-path", type=_PATH,
              default=Paths().plugins, show_default=True)  # fmt: skip
@click.option("--pod-resources", type=_PATH, default=Paths().pod_resources, show_default=True)
@click.option("--runtime-endpoint", "--container-runtime-endpoint",
              help="The runtime's socket [default: where runtimes usually listen].")  # fmt: skip
@click.option("--cdi", type=_PATH, default=Paths().cdi, show_default=True,
              help="Where CDI specs are written.")  # fmt: skip
@click.option("--vendor-cdi", type=_PATH, multiple=True, help="Folders of NVIDIA's CDI specs.")
@click.option("--dev", type=_PATH, default=Paths().dev, show_default=True)
@click.option("--state", type=_PATH, default=Paths().state, show_default=True)
@click.option("--virtual-manager-path", default=GpuManagerPaths().pods, show_default=True,
              help="gpu-manager's folders of pods.")  # fmt: skip
@click.option("--driver-volumes", default=GpuManagerPaths().drivers, show_default=True,
              help="gpu-manager's copies of the driver.")  # fmt: skip
@click.option("--memory-unit", default="GiB", show_default=True, help="gpushare's unit.")
@click.option("--device-memory-scaling", type=float, help="Part of each GPU's memory to offer.")
@click.option("--cgroup-driver", type=click.Choice(["cgroupfs", "systemd"], case_sensitive=False))
@click.option("--node-config", type=_FILE, default=NODE_CONFIG, show_default=True,
              help="gpu-manager's nodeConfig of all nodes.")  # fmt: skip
@click.option("--recover-seconds", type=click.FloatRange(0), default=RecoveryPolicy().first_seconds,
              show_default=True, help="How long an ill GPU must be well to return."
              )  # fmt: skip
@click.option("--heartbeat/--no-heartbeat", help="Publish the heartbeat the fork's extender needs.")
@click.option("--report-to", help="https://host of the metrics API to report usage to.")
@click.option("--report-ca", type=_FILE, help="PEM authorities [default: in its Secret].")
@click.option("--report-token", type=_FILE, help="Token file to show to that server.")
@click.option("--record-seconds", type=click.FloatRange(0, 20), default=10.0, show_default=True,
              help="How long a start waits for its pod's record.")  # fmt: skip
@click.option("--sample-seconds", "--sample-period", type=click.FloatRange(0.1),
              default=INTERVAL_SECONDS, show_default=True, help="How often usage is read."
              )  # fmt: skip
@click.option("--sweep-seconds", type=click.FloatRange(0.1), default=60.0, show_default=True,
              help="How often leftovers are looked for.")  # fmt: skip
@click.option("--most-units", type=click.IntRange(0), default=MOST_UNITS, show_default=True,
              help="Units of a resource above which it is a plain amount.")  # fmt: skip
@click.option("--missing-gpus", type=click.Choice(["refuse", "skip"]), default=None,
              help="What to do without a GPU's device node [default: refuse, skip if simulated]."
              )  # fmt: skip
@click.option("--log-level", type=click.Choice(sorted(LEVELS)), help="[env LOG_LEVEL]")
@click.option("-v", "--v", "verbosity", type=int, default=0, help="klog's level; 4 logs more.")
@go_switch("--share-mode", expose_value=False, hidden=True)
@klog_flags
@click.version_option(__version__, prog_name="slicewise")
def agent(**flags: Any) -> None:
    """Give every container of this node its own GPUs, and tell the cluster what GPUs there are.

    Every flag can also be set as SLICEWISE_AGENT_<FLAG>, or in the file of --config-file.
    """
    configure_logs(read_level(flags))
    command = read_command(flags)

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        await run_agent(command, stop)

    try:
        asyncio.run(serve())
    except (SlicewiseError, OSError) as error:
        raise click.ClickException(str(error)) from error


def read_command(flags: dict[str, Any]) -> AgentOptions:
    """The settings that flags, environment and file amount to."""
    host, port = read_address(flags["address"], DEFAULT_ADDRESS)
    dialects = tuple(word.strip() for word in flags["dialects"].split(",") if word.strip())
    try:
        DEFAULT.find_editions(dialects)
    except SlicewiseError as error:
        raise click.BadParameter(str(error), param_hint="--dialects") from error
    unit = _UNITS.get(flags["memory_unit"].lower())
    if unit is None:
        raise click.BadParameter(
            f"{flags['memory_unit']!r}: expected GiB or MiB", param_hint="--memory-unit"
        )
    source, _, file = flags["nvml"].partition(":")
    if source not in ("library", "simulated"):
        raise click.BadParameter(
            f"{flags['nvml']!r}: expected library or simulated:FILE", param_hint="--nvml"
        )
    skip = flags["missing_gpus"] or ("skip" if source == "simulated" else "refuse")
    settings = AgentSettings(
        node=flags["node_name"] or os.environ.get("NODENAME") or socket.gethostname().lower(),
        dialects=dialects,
        share_unit=unit,
        identity=None if flags["identity"] == "auto" else IdentityMode(flags["identity"]),
        paths=_read_paths(flags),
        places=GpuManagerPaths(flags["virtual_manager_path"], flags["driver_volumes"]),
        require_gpus=skip == "refuse",
        record_seconds=flags["record_seconds"],
        sample_seconds=flags["sample_seconds"],
        sweep_seconds=flags["sweep_seconds"],
        most_units=flags["most_units"],
    )
    return AgentOptions(
        settings=settings,
        kubeconfig=flags["kubeconfig"],
        listen=ServerSettings(host=host, port=port),
        simulated=source == "simulated",
        driver_file=Path(file) if file else None,
        node_config=flags["node_config"],
        flags=_read_node_flags(flags),
        recover_seconds=flags["recover_seconds"],
        heartbeat_seconds=30.0 if flags["heartbeat"] else None,
        report=_read_report(flags),
    )


def _read_node_flags(flags: dict[str, Any]) -> NodeFlags:
    given = flags["device_memory_scaling"]
    try:
        scaling = None if given is None else read_scaling("--device-memory-scaling", given)
    except SlicewiseError as error:
        raise click.BadParameter(str(error), param_hint="--device-memory-scaling") from error
    endpoint = (flags["runtime_endpoint"] or "").removeprefix("unix://")
    return NodeFlags(scaling, Path(endpoint) if endpoint else None, flags["cgroup_driver"])


def _read_report(flags: dict[str, Any]) -> ReportTarget | None:
    """Whom to report to: the flag's server, or the one that the original's chart puts beside."""
    beside = "MetadataName" in os.environ
    name, namespace = read_service_name(os.environ)
    address = flags["report_to"] or (f"https://{name}.{namespace}.svc" if beside else None)
    if address is None:
        return None
    return ReportTarget(address, flags["report_ca"], flags["report_token"], (namespace, name))


def _read_paths(flags: dict[str, Any]) -> Paths:
    return Paths(
        plugins=flags["device_plugins"],
        pod_resources=flags["pod_resources"],
        cdi=flags["cdi"],
        vendor_cdi=flags["vendor_cdi"] or (Path("/etc/cdi"), flags["cdi"]),
        dev=flags["dev"],
        state=flags["state"],
    )
