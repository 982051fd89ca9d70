"""`slicewise agent`: what runs on every GPU node, under its own flags and the originals'."""

import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from slicewise.cli.goflags import go_switch, ignored_flags, klog_flags, version_flag
from slicewise.cli.options import (
    ServiceCommand,
    check_exposure,
    exposure_options,
    find_home_file,
    health_option,
    log_options,
    read_address,
    read_health,
    read_limits,
    read_namespaced_name,
    read_service_name,
    read_tls,
    run_service,
    tls_options,
    trust_option,
    warn_open,
)
from slicewise.cli.render.logs import configure_logs, read_level
from slicewise.cli.render.terminal import echo
from slicewise.dialects import DEFAULT, original_flags
from slicewise.dialects.gpushare.pods import GIB, UNITS
from slicewise.dialects.shared.injection import GpuManagerPaths
from slicewise.httpd import ServerSettings, Tls, is_loopback
from slicewise.kubelet.display_service import SOCKET
from slicewise.kubelet.dra_plugin import DraFolders
from slicewise.model import MiB, SlicewiseError
from slicewise.nodeagent.compat.driver_files import ROOTS
from slicewise.nodeagent.compat.gpu_manager import GpuManagerOptions
from slicewise.nodeagent.compat.volume_config import (
    VolumeConfig,
    load_extra_devices,
    load_volume_config,
)
from slicewise.nodeagent.configuration import NodeConfig, read_scaling
from slicewise.nodeagent.gpus.health import RecoveryPolicy
from slicewise.nodeagent.plugin.offers import MOST_UNITS
from slicewise.nodeagent.run import NODE_CONFIG, AgentOptions, ReportTarget, run_agent
from slicewise.nodeagent.settings import (
    CLAIMS_LABEL,
    DIALECTS,
    AgentSettings,
    ClaimsMode,
    IdentityMode,
    LimitSettings,
    Paths,
)
from slicewise.nodeagent.usage.sampler import INTERVAL_SECONDS
from slicewise.reports import read_endpoint

T = TypeVar("T")
DEFAULT_ADDRESS: Final = "127.0.0.1:5678"
# gpuserver-ds's file in the home folder.
_CONFIG: Final = ".metrics-podresource-ds.yaml"
_ROUNDINGS = {"down": LimitSettings().rounding, "nearest": 0.0}
_PATH = click.Path(path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(
    cls=ServiceCommand,
    service="agent",
    short_help="Run on a GPU node: hand out its GPUs.",
    config_names=("--config", "-c", "--config-file"),
    config_default=lambda: find_home_file(_CONFIG),
)
@click.option("--node-name", "--hostname-override", "--nodeName", "--nodename", "--node",
              envvar="NODE_NAME",
              help="Name of this agent's Node [default: the machine's name].")  # fmt: skip
@click.option("--kubeconfig", "--kubeconf", type=_FILE,
              help="Kubeconfig of the API server [default: as kubectl and pods find it]."
              )  # fmt: skip
@click.option("--address", help=f"host:port for health, metrics, usage and audit "
              f"[default: {DEFAULT_ADDRESS}].")  # fmt: skip
@click.option("--query-addr", help="gpu-manager's flag for the host of --address.")
@click.option("--query-port", type=click.IntRange(1, 65535),
              help="gpu-manager's flag for the port of --address.")  # fmt: skip
@tls_options
@exposure_options
@health_option
@click.option("--nvml", default="library", show_default=True,
              help="Where GPUs are read from: library is NVIDIA's driver, library:FILE an NVML "
              "of your own, simulated:FILE a YAML description of GPUs.")  # fmt: skip
@go_switch("--fail-on-init-error", show_default=True,
           help="Exit when the driver does not answer at the start, so that the container is "
           "restarted, instead of waiting for the driver and not being ready.")  # fmt: skip
@click.option("--dialects", default=",".join(DIALECTS), show_default=True,
              help="Systems whose resources this node offers, separated by commas."
              )  # fmt: skip
@click.option("--identity", type=click.Choice(["auto", "cdi", "match"]), default="auto",
              show_default=True,
              help="How the agent learns which container it prepares GPUs for: cdi is exact, "
              "match is for runtimes without CDI, auto asks the runtime.")  # fmt: skip
@click.option("--dra", type=click.Choice([each.value for each in ClaimsMode]),
              help="Give out this node's GPUs by resource names (off), by ResourceClaims (all), or "
              "by both, with claims allocated by kube-scheduler (shared) or by the extender "
              f"(engine) [default: what the Node's label {CLAIMS_LABEL} says, else off]."
              )  # fmt: skip
@click.option("--dra-evict-unhealthy", is_flag=True,
              help="Let Kubernetes delete pods with ResourceClaims from a GPU that becomes "
              "unhealthy (taint effect NoExecute); otherwise they go on, and only new claims stay "
              "away.")  # fmt: skip
@click.option("--dra-registry", type=_PATH, default=DraFolders().registry, show_default=True,
              help="The kubelet's folder in which it finds DRA plugins.")  # fmt: skip
@click.option("--dra-plugins", type=_PATH, default=DraFolders().plugins, show_default=True,
              help="The kubelet's folder in which DRA plugins keep their sockets.")  # fmt: skip
@click.option("--device-plugins", "--device-plugin-path", type=_PATH,
              default=Paths().plugins, show_default=True,
              help="The kubelet's folder of device plugin sockets.")  # fmt: skip
@click.option("--pod-resources", "--localPodResourcesEndpoint",
              default=str(Paths().pod_resources), show_default=True,
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
@click.option("--limits", type=_PATH, default=Paths().limits, show_default=True,
              help="Folder for the limits of running containers; the agent mounts a small tmpfs "
              "there.")  # fmt: skip
@click.option("--limiter-library", type=_FILE, default=Paths().limiter, show_default=True,
              help="The library that holds containers to their shares; without this file none "
              "is limited.")  # fmt: skip
@click.option("--mps-pipe-directory", type=_PATH,
              help="Pipe folder of this node's MPS daemon; pods that name MPS are then its clients "
              "[default: MPS is not offered].")  # fmt: skip
@click.option("--driver-tier", type=click.Choice(["untested", "tested"]), default="untested",
              show_default=True,
              help="Whether a test on this node's hardware has shown that memory limits of the "
              "driver (r615 or newer) on a pod's cgroup hold; only then are pods given them."
              )  # fmt: skip
@click.option("--nvml-rounding", type=click.Choice(list(_ROUNDINGS)), default="down",
              show_default=True,
              help="How this node's NVML rounds the percentage of compute that a process used; "
              "limits of compute are corrected by it.")  # fmt: skip
@click.option("--no-timing", is_flag=True,
              help="Do not time launches in limited containers by CUDA events; what they cost is "
              "then guessed from their size, and limits of compute are coarser.")  # fmt: skip
@click.option("--context-memory", type=click.IntRange(0), default=LimitSettings().context,
              show_default=True,
              help="MiB of a limited container's memory that are held back for each of its "
              "processes until it is known what the driver takes for it.")  # fmt: skip
@click.option("--cgroups", type=_PATH, default=Paths().cgroups, show_default=True,
              help="Where cgroup v2 is mounted, with the cgroups of the node's pods, for the "
              "driver's memory limits.")  # fmt: skip
@click.option("--virtual-manager-path", default=GpuManagerPaths().pods, show_default=True,
              help="Folder of gpu-manager's limits, one folder for each pod.")  # fmt: skip
@click.option("--driver-volumes",
              help="Folder of gpu-manager's copies of the driver's libraries and tools, which the "
              f"agent makes [default: that of --volume-config, {GpuManagerPaths().drivers}]."
              )  # fmt: skip
@click.option("--driver-root", type=_PATH, multiple=True, default=ROOTS, show_default=True,
              help="Folder to find the host's driver in, for those copies; can be repeated, the "
              "first that has it is taken.")  # fmt: skip
@click.option("--volume-config", type=_FILE,
              help="gpu-manager's JSON file of what those copies hold [default: its own list]."
              )  # fmt: skip
@click.option("--extra-config", type=_FILE,
              help="gpu-manager's JSON file of further devices for its containers.")  # fmt: skip
@click.option("--display-socket", default=str(SOCKET), show_default=True,
              help="Socket of gpu-manager's display service; '' for none.")  # fmt: skip
@click.option("--allocation-check-seconds", "--allocation-check-period",
              type=click.FloatRange(0.1), default=30.0, show_default=True,
              help="How often pods of gpu-manager's kind that the kubelet did not admit are looked "
              "for, and deleted where a controller makes others.")  # fmt: skip
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
@click.option("--report-replicas", metavar="HOST:PORT", multiple=True,
              help="Report to every address of this name, such as a headless Service's, so that "
              "each replica of the metrics API knows the node [default: only to --report-to]."
              )  # fmt: skip
@click.option("--report-ca", type=_FILE,
              help="PEM authorities of the metrics API [default: those in its Secret]."
              )  # fmt: skip
@click.option("--report-token", type=_FILE,
              help="File of the token to show the metrics API [default: the pod's own]."
              )  # fmt: skip
@click.option("--custom-resources", metavar="NAMESPACE",
              help="Keep this node's GpuNode and GpuPods of nvidia-gpu-scheduler v0.2.0 in this "
              "namespace, and renew its Lease every two seconds [default: none are written]."
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
@click.option("--write-config-to", type=_FILE,
              help="Write gpuserver-ds's flags as a YAML file here, and exit.")  # fmt: skip
@trust_option
@log_options
@ignored_flags(original_flags.AGENT)
@klog_flags
@version_flag()
def agent(**flags: Any) -> None:
    """Give every container of this node its own GPUs, and tell the cluster what GPUs there are."""
    configure_logs(read_level(flags))
    if flags["write_config_to"] is not None:
        endpoint = f"unix://{read_socket(flags['pod_resources'])}"
        flags["write_config_to"].write_text(f"localPodResourcesEndpoint: {endpoint}\n")
        return
    run_service(partial(run_agent, read_options(flags)))


def read_options(flags: dict[str, Any]) -> AgentOptions:
    """The settings that flags, environment and file amount to."""
    tls = read_tls(flags)
    host, port = _read_listen(flags, tls)
    dialects = tuple(word.strip() for word in flags["dialects"].split(",") if word.strip())
    try:
        DEFAULT.find_editions(dialects)
    except SlicewiseError as error:
        raise click.BadParameter(str(error), param_hint="--dialects") from error
    unit = _read_unit(flags["memory_unit"])
    source, _, file = flags["nvml"].partition(":")
    if source not in ("library", "simulated"):
        raise click.BadParameter(
            f"{flags['nvml']!r}: expected library or simulated:FILE", param_hint="--nvml"
        )
    skip = flags["missing_gpus"] or ("skip" if source == "simulated" else "refuse")
    places, manager = _read_manager(flags)
    settings = AgentSettings(
        node=flags["node_name"] or os.environ.get("NODENAME") or socket.gethostname().lower(),
        dialects=dialects,
        share_unit=unit,
        claims=None if flags["dra"] is None else ClaimsMode(flags["dra"]),
        evict_unhealthy=flags["dra_evict_unhealthy"],
        identity=None if flags["identity"] == "auto" else IdentityMode(flags["identity"]),
        paths=_read_paths(flags),
        places=places,
        require_gpus=skip == "refuse",
        record_seconds=flags["record_seconds"],
        sample_seconds=flags["sample_seconds"],
        sweep_seconds=flags["sweep_seconds"],
        most_units=flags["most_units"],
        limits=LimitSettings(
            flags["driver_tier"] == "tested",
            _ROUNDINGS[flags["nvml_rounding"]],
            not flags["no_timing"],
            MiB(flags["context_memory"]),
        ),
    )
    return AgentOptions(
        settings=settings,
        kubeconfig=flags["kubeconfig"],
        listen=ServerSettings(host, port, tls, limits=read_limits(flags)),
        health=read_health(flags["health_address"], DEFAULT_ADDRESS),
        simulated=source == "simulated",
        driver_file=Path(file) if file else None,
        node_config=flags["node_config"],
        flags=_read_node_flags(flags),
        recover_seconds=flags["recover_seconds"],
        heartbeat_seconds=30.0 if flags["heartbeat"] else None,
        report=_read_report(flags),
        custom_resources=flags["custom_resources"] or None,
        trust=read_namespaced_name("--trust-configmap", flags["trust_configmap"]),
        manager=manager,
        fail_on_init_error=flags["fail_on_init_error"],
    )


def _read_manager(flags: dict[str, Any]) -> tuple[GpuManagerPaths, GpuManagerOptions]:
    """gpu-manager's folders and files; a file that cannot be read is named and done without."""
    volumes = _try_load("--volume-config", flags["volume_config"], load_volume_config)
    devices = _try_load("--extra-config", flags["extra_config"], load_extra_devices)
    chosen = volumes or VolumeConfig()
    drivers = flags["driver_volumes"] or chosen.base or GpuManagerPaths().drivers
    return (
        GpuManagerPaths(flags["virtual_manager_path"], drivers, devices or ()),
        GpuManagerOptions(
            volumes=chosen,
            roots=tuple(flags["driver_root"]),
            display=Path(flags["display_socket"]) if flags["display_socket"] else None,
            check_seconds=flags["allocation_check_seconds"],
        ),
    )


def _try_load(flag: str, path: Path | None, load: Callable[[Path], T]) -> T | None:
    if path is None:
        return None
    try:
        return load(path)
    except SlicewiseError as error:
        echo(f"{flag}: {error}; not used", err=True)
        return None


def read_socket(text: str) -> Path:
    """The path of a socket, which some programs write as an address."""
    return Path(text.removeprefix("unix://"))


def _read_listen(flags: dict[str, Any], tls: Tls | None) -> tuple[str, int]:
    """Where to listen: --address, or gpu-manager's two flags, which are consent as for it."""
    host, port = read_address(flags["address"], DEFAULT_ADDRESS)
    if flags["address"] is None:
        port = flags["query_port"] or port
        if flags["query_addr"] and not is_loopback(flags["query_addr"]):
            if tls is None or tls.client_ca is None:
                warn_open(f"--query-addr={flags['query_addr']}", port)
            return flags["query_addr"], port
    check_exposure(host, tls, flags)
    return host, port


def _read_node_flags(flags: dict[str, Any]) -> NodeConfig:
    given = flags["device_memory_scaling"]
    try:
        scaling = None if given is None else read_scaling("--device-memory-scaling", given)
    except SlicewiseError as error:
        raise click.BadParameter(str(error), param_hint="--device-memory-scaling") from error
    endpoint = flags["runtime_endpoint"]
    runtime = read_socket(endpoint) if endpoint else None
    return NodeConfig(scaling, runtime, flags["cgroup_driver"])


def _read_report(flags: dict[str, Any]) -> ReportTarget | None:
    """Whom to report to: the flag's server, or the one that the original's chart puts beside."""
    beside = "MetadataName" in os.environ
    name, namespace = read_service_name(os.environ)
    address = flags["report_to"] or (f"https://{name}.{namespace}.svc" if beside else None)
    if address is None:
        return None
    try:
        replicas = tuple(map(read_endpoint, flags["report_replicas"]))
    except SlicewiseError as error:
        raise click.BadParameter(str(error), param_hint="--report-replicas") from error
    secret = (namespace, name)
    return ReportTarget(address, flags["report_ca"], flags["report_token"], secret, replicas)


def _read_unit(word: str) -> MiB:
    """The unit of this name; GiB for any other word, with a warning, as the original takes it."""
    unit = UNITS.get(word.lower())
    if unit is None:
        echo(f"--memory-unit={word!r}: expected GiB or MiB; GiB is taken", err=True)
    return GIB.memory_unit if unit is None else unit


def _read_paths(flags: dict[str, Any]) -> Paths:
    return Paths(
        plugins=flags["device_plugins"],
        pod_resources=read_socket(flags["pod_resources"]),
        dra=DraFolders(flags["dra_registry"], flags["dra_plugins"]),
        cdi=flags["cdi"],
        vendor_cdi=flags["vendor_cdi"] or (Path("/etc/cdi"), flags["cdi"]),
        dev=flags["dev"],
        state=flags["state"],
        limits=flags["limits"],
        limiter=flags["limiter_library"],
        mps_pipe=flags["mps_pipe_directory"],
        cgroups=flags["cgroups"],
    )
