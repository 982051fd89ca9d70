"""`slicewise agent`: what runs on every GPU node, under its own flags and the originals'."""

import os
import socket
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from slicewise import __version__
from slicewise.cli.goflags import go_switch, klog_flags
from slicewise.cli.logs import configure_logs, read_level
from slicewise.cli.options import (
    ServiceCommand,
    log_options,
    read_address,
    read_service_name,
    run_service,
)
from slicewise.dialects import DEFAULT
from slicewise.dialects.gpushare.pods import GIB, MIB
from slicewise.dialects.shared.injection import GpuManagerPaths
from slicewise.httpd import ServerSettings
from slicewise.model import SlicewiseError
from slicewise.nodeagent.configuration import NodeConfig, read_scaling
from slicewise.nodeagent.gpus.health import RecoveryPolicy
from slicewise.nodeagent.plugin.offers import MOST_UNITS
from slicewise.nodeagent.run import NODE_CONFIG, AgentOptions, ReportTarget, run_agent
from slicewise.nodeagent.settings import DIALECTS, AgentSettings, IdentityMode, Paths
from slicewise.nodeagent.usage.sampler import INTERVAL_SECONDS

DEFAULT_ADDRESS: Final = "127.0.0.1:5678"
_UNITS: Final = {"gib": GIB.memory_unit, "mib": MIB.memory_unit}
_PATH = click.Path(path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=ServiceCommand, service="agent", config_names=("--config", "--config-file"))
@click.option("--node-name", "--hostname-override", "--nodeName", envvar="NODE_NAME",
              help="Name of this agent's Node [default: the machine's name].")  # fmt: skip
@click.option("--kubeconfig", "--kubeconf", type=_FILE,
              help="Kubeconfig of the API server [default: as kubectl and pods find it]."
              )  # fmt: skip
@click.option("--address", help=f"host:port for health, metrics, usage and audit "
              f"[default: {DEFAULT_ADDRESS}].")  # fmt: skip
@click.option("--nvml", default="library", show_default=True,
              help="Where GPUs are read from: library is NVIDIA's driver, library:FILE an NVML "
              "of your own, simulated:FILE a YAML description of GPUs.")  # fmt: skip
@click.option("--dialects", default=",".join(DIALECTS), show_default=True,
              help="Systems whose resources this node offers, separated by commas."
              )  # fmt: skip
@click.option("--identity", type=click.Choice(["auto", "cdi", "match"]), default="auto",
              show_default=True,
              help="How the agent learns which container it prepares GPUs for: cdi is exact, "
              "match is for runtimes without CDI, auto asks the runtime.")  # fmt: skip
@click.option("--device-plugins", "--device-plugin-path", type=_PATH,
              default=Paths().plugins, show_default=True,
              help="The kubelet's folder of device plugin sockets.")  # fmt: skip
@click.option("--pod-resources", type=_PATH, default=Paths().pod_resources, show_default=True,
              help="The kubelet's pod-resources socket.")  # fmt: skip
@click.option("--runtime-endpoint", "--container-runtime-endpoint",
              help="Socket of the container runtime [default: where runtimes usually listen]."
              )  # fmt: skip
@click.option("--cdi", type=_PATH, default=Paths().cdi, show_default=True,
              help="Folder to write CDI specs to; the runtime must read it.")  # fmt: skip
@click.option("--vendor-cdi", type=_PATH, multiple=True,
              help="Folder of NVIDIA's own CDI specs; can be repeated "
              "[default: /etc/cdi and --cdi].")  # fmt: skip
@click.option("--dev", type=_PATH, default=Paths().dev, show_default=True,
              help="Folder of the host's device nodes.")  # fmt: skip
@click.option("--state", type=_PATH, default=Paths().state, show_default=True,
              help="Folder for what must survive a restart of the agent.")  # fmt: skip
@click.option("--virtual-manager-path", default=GpuManagerPaths().pods, show_default=True,
              help="Folder of gpu-manager's limits, one folder for each pod.")  # fmt: skip
@click.option("--driver-volumes", default=GpuManagerPaths().drivers, show_default=True,
              help="Folder of gpu-manager's copies of the driver's libraries.")  # fmt: skip
@click.option("--memory-unit", default="GiB", show_default=True,
              help="Size of one unit of gpushare's memory: GiB or MiB.")  # fmt: skip
@click.option("--device-memory-scaling", type=float,
              help="Fraction of each GPU's memory to offer, above 0 and at most 1."
              )  # fmt: skip
@click.option("--cgroup-driver", type=click.Choice(["cgroupfs", "systemd"], case_sensitive=False),
              help="The kubelet's cgroup driver [default: as the host shows].")  # fmt: skip
@click.option("--node-config", type=_FILE, default=NODE_CONFIG, show_default=True,
              help="gpu-manager's nodeConfig file, whose entry for this node comes before flags."
              )  # fmt: skip
@click.option("--recover-seconds", type=click.FloatRange(0), default=RecoveryPolicy().first_seconds,
              show_default=True,
              help="Return an unhealthy GPU to service after this long without a critical XID."
              )  # fmt: skip
@click.option("--heartbeat/--no-heartbeat",
              help="Publish the heartbeat annotation that the gpu-admission fork's extender needs."
              )  # fmt: skip
@click.option("--report-to",
              help="Report usage to the metrics API at this address, like https://name.namespace."
              )  # fmt: skip
@click.option("--report-ca", type=_FILE,
              help="PEM authorities of the metrics API [default: those in its Secret]."
              )  # fmt: skip
@click.option("--report-token", type=_FILE,
              help="File of the token to show the metrics API [default: the pod's own]."
              )  # fmt: skip
@click.option("--record-seconds", type=click.FloatRange(0, 20), default=10.0, show_default=True,
              help="How long a container start waits for the scheduler's record on its pod."
              )  # fmt: skip
@click.option("--sample-seconds", "--sample-period", type=click.FloatRange(0.1),
              default=INTERVAL_SECONDS, show_default=True,
              help="How often the usage of GPUs is read.")  # fmt: skip
@click.option("--sweep-seconds", type=click.FloatRange(0.1), default=60.0, show_default=True,
              help="How often files that deleted pods left behind are looked for and removed."
              )  # fmt: skip
@click.option("--most-units", type=click.IntRange(0), default=MOST_UNITS, show_default=True,
              help="Offer a resource with more units than this as a plain amount on the Node, "
              "where another resource brings the GPU.")  # fmt: skip
@click.option("--missing-gpus", type=click.Choice(["refuse", "skip"]), default=None,
              help="Refuse or start a container whose GPU has no device node on the host "
              "[default: refuse; skip if simulated].")  # fmt: skip
@log_options
@go_switch("--share-mode", expose_value=False, hidden=True)
@klog_flags
@click.version_option(__version__, prog_name="slicewise")
def agent(**flags: Any) -> None:
    """Give every container of this node its own GPUs, and tell the cluster what GPUs there are."""
    configure_logs(read_level(flags))
    run_service(partial(run_agent, read_options(flags)))


def read_options(flags: dict[str, Any]) -> AgentOptions:
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


def _read_node_flags(flags: dict[str, Any]) -> NodeConfig:
    given = flags["device_memory_scaling"]
    try:
        scaling = None if given is None else read_scaling("--device-memory-scaling", given)
    except SlicewiseError as error:
        raise click.BadParameter(str(error), param_hint="--device-memory-scaling") from error
    endpoint = (flags["runtime_endpoint"] or "").removeprefix("unix://")
    return NodeConfig(scaling, Path(endpoint) if endpoint else None, flags["cgroup_driver"])


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
