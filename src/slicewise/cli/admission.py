"""`slicewise admission-policies` and `admission-webhook`: what tenants and agents are held to.

The API server evaluates the policies itself; where it is too old for that, it asks the webhook.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import yaml

from slicewise.admission.claim_policy import CLAIMS
from slicewise.admission.policies import MUTATING, PolicySettings, build_binding, build_policies
from slicewise.admission.run import COMPONENT, WebhookSettings, run_webhook
from slicewise.cli.cluster_access import cluster_options
from slicewise.cli.goflags import version_flag
from slicewise.cli.options import (
    FILE,
    ServiceCommand,
    log_options,
    read_address,
    read_limits,
    read_tls,
    run_service,
)
from slicewise.cli.render.logs import configure_logs, read_level
from slicewise.cli.render.terminal import echo_text
from slicewise.httpd import ConnectionLimits, ServerSettings
from slicewise.kube.kubeconfig import find_access
from slicewise.model import SlicewiseError

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_ADDRESS: Final = "0.0.0.0:8443"
_DEFAULTS: Final = PolicySettings()
_ACTIONS: Final = ("Deny", "Warn", "Audit")
# Opt-in, because images of NVIDIA's own set the variable that it forbids in pods.
_OPTIONAL: Final = "visible-devices"


def policy_options(command: F) -> F:
    """The flags in which policies differ from cluster to cluster."""
    for flag in (
        click.option("--action", "actions", multiple=True, type=click.Choice(_ACTIONS),
                     default=_DEFAULTS.actions, show_default=True,
                     help="What a violation leads to; Warn and Audit together try the policies "
                     "out. Can be given several times."),
        click.option("--scheduler-name", default=_DEFAULTS.scheduler, show_default=True,
                     help="Scheduler that pods which ask for GPUs are given in place of the "
                     "default one; '' leaves them with theirs."),
        click.option("--agent-account", default=_DEFAULTS.agent_account, show_default=True,
                     help="ServiceAccount of the agents in that namespace."),
        click.option("--namespace", default=_DEFAULTS.namespace, show_default=True,
                     help="Namespace in which Slicewise runs."),
    ):  # fmt: skip
        command = flag(command)
    return command


def read_policies(flags: dict[str, Any], name: str = _DEFAULTS.name) -> PolicySettings:
    """The settings that these flags amount to."""
    return PolicySettings(
        name=name,
        namespace=flags["namespace"],
        agent_account=flags["agent_account"],
        scheduler=flags["scheduler_name"],
        actions=tuple(flags["actions"]),
    )


@click.command("admission-policies", short_help="Print admission policies for kubectl apply.")
@policy_options
@click.option("--visible-devices", is_flag=True, help="Also forbid pods to set "
              "NVIDIA_VISIBLE_DEVICES to anything but none or void.")  # fmt: skip
@click.option("--claims", is_flag=True, help="Also let ResourceClaims that the engine does not do "
              "tolerate its taint, so that schedulers allocate them.")  # fmt: skip
def admission_policies(*, visible_devices: bool, claims: bool, **flags: Any) -> None:
    """Print admission policies and their bindings, for kubectl apply."""
    settings = read_policies(flags)
    objects = []
    left = {*(() if visible_devices else (_OPTIONAL,)), *(() if claims else (CLAIMS,))}
    left |= set() if settings.scheduler else set(MUTATING)
    for short, policy in build_policies(settings).items():
        if short in left:
            continue
        objects += [policy, build_binding(short, settings)]
    echo_text(yaml.safe_dump_all(objects, sort_keys=False, width=100))


@click.command(
    "admission-webhook",
    cls=ServiceCommand,
    service="admission-webhook",
    short_help="Serve the policies as a webhook.",
)
@click.option("--address", default=DEFAULT_ADDRESS, show_default=True,
              help="host:port to listen on, always with TLS.")  # fmt: skip
@click.option("--name", default=COMPONENT, show_default=True,
              help="Name of the Service that leads here, and of the Secret in which certificates "
              "are kept that are made here.")  # fmt: skip
@click.option("--prefix", default=_DEFAULTS.name, show_default=True,
              help="How the names of the webhook configurations begin, into which the authority "
              "of the certificate is written.")  # fmt: skip
@policy_options
@click.option("--tls-cert", type=FILE, help="PEM certificate chain to serve with; without it one "
              "is made, renewed and kept in the Secret.")  # fmt: skip
@click.option("--tls-key", type=FILE, help="PEM private key of --tls-cert.")
@click.option("--tls-ca", type=FILE, help="PEM certificate authority of --tls-cert, to be written "
              "into the webhook configurations.")  # fmt: skip
@click.option("--max-connections", type=click.IntRange(2), show_default=True,
              default=ConnectionLimits().connections,
              help="Connections at a time; one address has at most half of them.")  # fmt: skip
@cluster_options
@log_options
@version_flag()
def admission_webhook(**flags: Any) -> None:
    """Serve the same defaults and refusals to API servers that evaluate no policies."""
    configure_logs(read_level(flags))
    try:
        settings = read_webhook(flags)
    except SlicewiseError as error:
        raise click.ClickException(str(error)) from error
    run_service(partial(run_webhook, settings))


def read_webhook(flags: dict[str, Any]) -> WebhookSettings:
    """The settings that flags, environment and file amount to."""
    host, port = read_address(flags["address"], DEFAULT_ADDRESS)
    authority: Path | None = flags["tls_ca"]
    return WebhookSettings(
        access=find_access(flags["kubeconfig"], flags["context"]),
        name=flags["name"],
        namespace=flags["namespace"],
        policies=read_policies(flags, flags["prefix"]),
        listen=ServerSettings(
            host=host,
            port=port,
            tls=read_tls(flags),
            # The API server waits three seconds for an answer.
            request_seconds=5.0,
            limits=read_limits(flags),
        ),
        authority=authority,
    )
