"""`slicewise extender`: what kube-scheduler talks to, under its own flags and the originals'."""

import os
import socket
from functools import partial
from typing import Any, Final

import click
import uvloop

from slicewise.cli.goflags import ignored_flags, klog_flags, version_flag
from slicewise.cli.options import (
    FILE,
    Document,
    ServiceCommand,
    check_exposure,
    exposure_options,
    health_option,
    log_options,
    quota_label_options,
    read_address,
    read_health,
    read_limits,
    read_namespaced_name,
    read_port,
    read_quota_labels,
    read_tls,
    run_service,
    tls_options,
    trust_option,
    warn_open,
)
from slicewise.cli.render.logs import configure_logs, read_level
from slicewise.dialects import original_flags
from slicewise.dialects.gpushare.pods import UNITS as GPUSHARE_UNITS
from slicewise.extender.run import ExtenderSettings, run_extender
from slicewise.extender.signing import SigningSettings
from slicewise.extender.tracing import VARIABLES
from slicewise.httpd import ServerSettings, Tls
from slicewise.model import SlicewiseError
from slicewise.placement import read_policy
from slicewise.placement.fairness import FairRules
from slicewise.state.settings import StateSettings
from slicewise.state.trust import SIGNING_SECRET
from slicewise.trust import OVERLAP_SECONDS

DEFAULT_ADDRESS: Final = "127.0.0.1:3456"
# What gpu-admission's own file says of labels, and the flag that says it here.
_LABELS: Final = {"GPUModelLabel": "model-label", "GPUPoolLabel": "pool-label"}
_MODES: Final = ("gpushare", "pgpu", "qgpu")


def translate_admission(document: Document) -> Document:
    """A file of ours as it is, and gpu-admission's JSON in our words."""
    ours = {_LABELS.get(key, key): value for key, value in document.items()}
    namespace = ours.pop("QuotaConfigMapNamespace", None)
    name = ours.pop("QuotaConfigMapName", None)
    if namespace or name:
        ours["quota-configmap"] = f"{namespace or 'kube-system'}/{name or 'gpuquota'}"
    return ours


def is_admissions(key: str) -> bool:
    """Whether gpu-admission could have such a key: ours have no capitals."""
    return key != key.lower()


@click.command(
    cls=ServiceCommand,
    service="extender",
    translate=translate_admission,
    skips=is_admissions,
    short_help="Serve kube-scheduler: place and bind pods.",
)
@click.option("--address", help=f"host:port to listen on [default: {DEFAULT_ADDRESS}; "
              "env PORT is a port of every interface].")  # fmt: skip
@click.option("--kubeconfig", "--kubeconf", type=FILE, help="Kubeconfig of the API server "
              "[default: KUBECONFIG, the pod's own, ~/.kube/config].")  # fmt: skip
@click.option("--master", help="URL of the API server, in place of the kubeconfig's.")
@click.option("--policy", help="Placement policy of pods that name none, like binpack, spread, "
              "random or fgd [default: default].")  # fmt: skip
@click.option("--priority", help="elastic-gpu's flag for the policy: binpack, spread or random.")
@click.option("--mode", help="elastic-gpu's list of modes; all are served whatever it says.")
@click.option("--commit-in-filter", is_flag=True,
              help="Let /scheduler/filter choose the node and write the allocation on the pod, "
              "for schedulers that are configured without a bind verb.")  # fmt: skip
@click.option("--quota-configmap", help="namespace/name of the ConfigMap with the GPU quota of "
              "namespaces; '' for no quota [default: kube-system/gpuquota].")  # fmt: skip
@quota_label_options()
@click.option("--gpushare-unit", type=click.Choice(["auto", "GiB", "MiB"], case_sensitive=False),
              default="auto", show_default=True, help="What one aliyun.com/gpu-mem is on nodes "
              "that do not say it by the annotation slicewise.io/gpushare-unit; auto tells it from "
              "their capacity.")  # fmt: skip
@click.option("--dra/--no-dra", default=False, show_default=True, help="Follow ResourceClaims, and "
              "grant or refuse what schedulers allocate to them on nodes that share their GPUs "
              "between claims and pods (label slicewise.io/dra=shared), or allocate them "
              "(slicewise.io/dra=engine). Without it, no pod is given GPUs of such nodes."
              )  # fmt: skip
@click.option("--leader-elect/--no-leader-elect", default=True, show_default=True,
              help="Let one of several replicas decide. Without it this process must be the only "
              "one, and stops deciding when it finds another.")  # fmt: skip
@click.option("--lease", default="kube-system/slicewise-extender", show_default=True,
              help="namespace/name of the Lease that tells who decides.")  # fmt: skip
@click.option("--follow-lease", help="namespace/name of the Lease of the kube-scheduler beside "
              "this process: lead while that scheduler does, in place of an election. --lease "
              "still guards writes.")  # fmt: skip
@click.option("--follow-host", help="Host name with which the identity of the followed Lease's "
              "holder begins [default: this host's, which is the pod's name].")  # fmt: skip
@click.option("--leader-service", multiple=True, help="namespace/name of a Service without "
              "selector whose EndpointSlice the leader points at itself; needs POD_NAMESPACE, "
              "POD_NAME, POD_UID and POD_IP. Can be given several times.")  # fmt: skip
@click.option("--evict/--no-evict", default=True, show_default=True,
              help="Evict pods of lower priority through the Eviction API for a pod that fits no "
              "GPU and that kube-scheduler, which counts only sums, finds no victims for."
              )  # fmt: skip
@click.option("--fair-after", type=click.FloatRange(min=0.0), default=0.0, show_default=True,
              help="Seconds after which room is kept for the pod that has waited longest, so that "
              "smaller pods do not take it again and again; 0 keeps none.")  # fmt: skip
@click.option("--fair-for", type=click.FloatRange(min=1.0), default=600.0, show_default=True,
              help="Seconds for which room is kept for one pod at most.")  # fmt: skip
@trust_option
@click.option("--signing-secret", default="/".join(SIGNING_SECRET), show_default=True,
              help="namespace/name of the Secret with the private keys that sign records; it is "
              "made with a new key when missing.")  # fmt: skip
@click.option("--signing-key", type=FILE, help="PEM file of Ed25519 private keys, the newest last, "
              "in place of the Secret; read again when it changes.")  # fmt: skip
@click.option("--key-overlap-seconds", default=OVERLAP_SECONDS, show_default=True,
              help="How long a new key is published before it signs.")  # fmt: skip
@click.option("--take-over", is_flag=True, help="Begin a take-over of running pods at the start, "
              "if none was ever begun; `slicewise trust take-over end` ends it.")  # fmt: skip
@tls_options
@exposure_options
@health_option
@click.option("--max-body-mib", default=128, show_default=True,
              help="Largest request body in MiB; a larger one is refused with 413.")  # fmt: skip
@click.option("--request-seconds", default=30.0, show_default=True,
              help="Longest time for reading a request, and for answering it.")  # fmt: skip
@click.option("--otlp-endpoint", help="Send traces to this OpenTelemetry collector, like "
              "http://127.0.0.1:4318 [env OTEL_EXPORTER_OTLP_ENDPOINT].")  # fmt: skip
@log_options
@ignored_flags(original_flags.EXTENDER)
@klog_flags
@version_flag()
def extender(**flags: Any) -> None:
    """Serve kube-scheduler: filter, prioritize, preempt and bind pods that ask for GPUs."""
    configure_logs(read_level(flags))
    run_service(partial(run_extender, read_settings(flags)), run=uvloop.run)


def read_settings(flags: dict[str, Any]) -> ExtenderSettings:
    """The settings that flags, environment and gpu-admission's file amount to."""
    tls = read_tls(flags)
    host, port = _read_listen(flags, tls)
    follow = _read_follow(flags)
    return ExtenderSettings(
        kubeconfig=flags["kubeconfig"],
        master=flags["master"],
        listen=ServerSettings(
            host=host,
            port=port,
            tls=tls,
            max_body_bytes=flags["max_body_mib"] << 20,
            request_seconds=flags["request_seconds"],
            limits=read_limits(flags),
        ),
        health=read_health(flags["health_address"], DEFAULT_ADDRESS),
        state=StateSettings(
            policy=_read_policy(flags),
            quota=_read_quota(flags),
            namespaces=True,
            claims=flags["dra"],
            trust=read_namespaced_name("--trust-configmap", flags["trust_configmap"]),
        ),
        signing=SigningSettings(
            secret=read_namespaced_name("--signing-secret", flags["signing_secret"]),
            key_file=flags["signing_key"],
            overlap_seconds=flags["key_overlap_seconds"],
            take_over=flags["take_over"],
        ),
        gpushare_unit=GPUSHARE_UNITS.get(flags["gpushare_unit"].lower()),
        labels=read_quota_labels(flags),
        commit_in_filter=flags["commit_in_filter"],
        lease=read_namespaced_name("--lease", flags["lease"]),
        leader_elect=flags["leader_elect"],
        follow=follow,
        host=flags["follow_host"] or socket.gethostname(),
        leader_services=tuple(
            read_namespaced_name("--leader-service", each) for each in flags["leader_service"]
        ),
        otlp=_read_otlp(flags["otlp_endpoint"]),
        evict=flags["evict"],
        fair=FairRules(flags["fair_after"], flags["fair_for"]) if flags["fair_after"] else None,
    )


def _read_listen(flags: dict[str, Any], tls: Tls | None) -> tuple[str, int]:
    """Where to listen; the originals' PORT means every interface, and is consent to that."""
    told = read_port(os.environ) if flags["address"] is None else None
    if told is None:
        host, port = read_address(flags["address"], DEFAULT_ADDRESS)
        check_exposure(host, tls, flags)
        return host, port
    if tls is None or tls.client_ca is None:
        warn_open(f"PORT={told}", told)
    return "0.0.0.0", told


def _read_follow(flags: dict[str, Any]) -> tuple[str, str] | None:
    text: str | None = flags["follow_lease"]
    if text is None:
        return None
    if not flags["leader_elect"]:
        raise click.BadParameter(
            "expected election beside it: without, this process decides whoever leads",
            param_hint="--follow-lease",
        )
    return read_namespaced_name("--follow-lease", text)


def _read_otlp(flag: str | None) -> str | None:
    """Where to trace to: the flag, or empty where the standard's own variables tell."""
    if flag:
        return flag
    return "" if any(os.environ.get(name) for name in VARIABLES) else None


def _read_policy(flags: dict[str, Any]) -> str:
    mode = flags["mode"]
    for word in mode.split(",") if mode else ():
        if word not in _MODES:
            raise click.BadParameter(f"{word!r}: expected {', '.join(_MODES)}", param_hint="--mode")
    priority = flags["priority"]
    if priority not in (None, "binpack", "spread", "random"):
        raise click.BadParameter(
            f"{priority!r}: expected binpack, spread or random", param_hint="--priority"
        )
    policy: str = flags["policy"] or priority or "default"
    try:
        read_policy(policy)
    except SlicewiseError as error:
        raise click.BadParameter(str(error), param_hint="--policy") from error
    return policy


def _read_quota(flags: dict[str, Any]) -> tuple[str, str] | None:
    text = flags["quota_configmap"]
    if text is None:
        return StateSettings().quota
    return read_namespaced_name("--quota-configmap", text) if text else None
