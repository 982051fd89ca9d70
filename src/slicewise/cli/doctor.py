"""`slicewise doctor`: checks everything placement depends on, and says what to do about it.

It only reads, and says so of what it was not allowed to read.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from slicewise import __version__
from slicewise.cli.cluster_access import (
    FILE,
    CannotTell,
    ClusterFlags,
    cluster_options,
    open_reader,
    run_connected,
)
from slicewise.cli.extender_client import choose_settings
from slicewise.cli.render.findings_text import summarise, write_findings
from slicewise.cluster import ProblemKind
from slicewise.diagnose.agents import AGENTS, check_agents, check_extender
from slicewise.diagnose.findings import (
    Finding,
    FindingSeverity,
    describe_findings,
    note,
    ok,
    problem,
    warning,
)
from slicewise.diagnose.nodes import check_nodes, find_resources
from slicewise.diagnose.scheduler import SCHEDULER, check_config, check_flags, read_config
from slicewise.diagnose.services import QUOTA, check_apiservice, check_quota, check_rights
from slicewise.kube.access_reviews import may_do
from slicewise.kube.client import Call, Client
from slicewise.kube.errors import KubeError, RefusedError
from slicewise.kube.node_details import list_node_details
from slicewise.kube.reads import read_one
from slicewise.kube.scheduler_configs import NAMESPACE, list_config_texts, list_scheduler_flags
from slicewise.model import NodeDetails
from slicewise.state.live import LiveState, StateSettings
from slicewise.state.node_reports import AGENT_PORT
from slicewise.state.probes import ask_agents, ask_extender

APISERVICES: Final = ("v1alpha1.metrics.nvidia.com",)
LEDGER: Final = "pods and GPUs"
_REMAKE: Final = (
    "kubectl slicewise why POD says what it holds; delete and recreate it if it is wrong"
)
_UNMARKED: Final = "no record says which GPUs it has, so it counts on all GPUs of its node"
_BIND: Final = "let pods be bound through Slicewise, or keep a node for those whose kubelet chooses"
_RIGHTS: Final = (
    ("list", "nodes", "", "every command"),
    ("list", "pods", "", "every command"),
    ("list", "configmaps", "kube-system", "the quota in why and what-if"),
    ("get", "nodes/proxy", "", "the use in top"),
    ("patch", "nodes", "", "cordon"),
)


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """What the doctor is asked to check."""

    scheduler_config: Path | None = None
    extender: str | None = None
    agent_port: int = AGENT_PORT


@click.command(short_help="Find what keeps pods from their GPUs.")
@click.option(
    "--scheduler-config",
    type=FILE,
    help="Check this file of kube-scheduler --config [default: as found in the cluster].",
)
@click.option(
    "--extender", help="Check the extender at this address too, like http://127.0.0.1:3456."
)
@click.option(
    "--agent-port",
    default=AGENT_PORT,
    show_default=True,
    help="Port on which the nodes' agents listen.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too, not only for problems.")
@click.option(
    "-o", "--output", type=click.Choice(["json"]), help="Print the findings as JSON, for scripts."
)
@cluster_options
def doctor(strict: bool, output: str | None, **flags: Any) -> None:
    """Find what keeps pods from getting their GPUs, and say what to do about it.

    Exits with 0 when there is no problem, 1 when there is one, 2 when the cluster cannot be read.
    """
    options = DoctorOptions(
        *(flags.pop(each) for each in ("scheduler_config", "extender", "agent_port"))
    )
    findings = run_connected(
        ClusterFlags(**flags), lambda client: examine(client, options), CannotTell
    )
    if output == "json":
        click.echo(json.dumps(describe_findings(findings), indent=2))
    else:
        for line in write_findings(findings):
            click.echo(line)
        click.echo(summarise(findings))
    grave = (
        (FindingSeverity.PROBLEM, FindingSeverity.WARNING) if strict else (FindingSeverity.PROBLEM,)
    )
    raise SystemExit(1 if any(each.severity in grave for each in findings) else 0)


async def examine(client: Client, options: DoctorOptions) -> list[Finding]:
    """All findings, in the order in which they are shown."""
    nodes = await list_node_details(client, open_reader())
    findings, with_gpus = check_nodes(nodes)
    findings += await _check_agents(client, with_gpus, options.agent_port)
    findings += await _try(SCHEDULER, _check_schedulers(client, options, nodes))
    if options.extender:
        about = await ask_extender(options.extender)
        findings += check_extender(about, __version__, datetime.now(UTC))
    for name in APISERVICES:
        findings += await _try("metrics API", _check_apiservice(client, name))
    findings += await _try(QUOTA, _check_quota(client))
    findings += await _try(LEDGER, _check_ledger(client))
    findings += await _check_rights(client)
    return findings


async def _try(topic: str, work: Awaitable[list[Finding]]) -> list[Finding]:
    """The findings, or one that says why they could not be made."""
    try:
        return await work
    except RefusedError as error:
        return [note(topic, f"cannot be checked: {error.message}")]
    except KubeError as error:
        return [warning(topic, f"cannot be checked: {error}", "try again")]


async def _check_agents(client: Client, nodes: Sequence[NodeDetails], port: int) -> list[Finding]:
    try:
        answers = await ask_agents(client, nodes, port)
    except RefusedError as error:
        what, fix = f"cannot be asked: {error.message}", "ask for get on nodes/proxy"
        return [note(AGENTS, what, fix)]
    return check_agents(nodes, answers, __version__, port)


async def _check_schedulers(
    client: Client, options: DoctorOptions, nodes: Sequence[NodeDetails]
) -> list[Finding]:
    def check(config: dict[str, Any], where: str) -> list[Finding]:
        return check_config(config, find_resources(nodes), len(nodes), where)

    if options.scheduler_config is not None:
        return _check_file(options.scheduler_config, check)
    read = [(read_config(text), where) for where, text in await list_config_texts(client)]
    findings = [
        finding for config, where in read if config is not None for finding in check(config, where)
    ]
    return findings or list(check_flags(await list_scheduler_flags(client), NAMESPACE))


def _check_file(path: Path, check: Callable[[dict[str, Any], str], list[Finding]]) -> list[Finding]:
    try:
        config = read_config(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise CannotTell(f"cannot read {path}: {error}") from error
    if config is None:
        fix = "pass what kube-scheduler has as --config or --policy-config-file"
        return [problem(SCHEDULER, f"{path} is no scheduler configuration", fix)]
    return check(config, str(path))


async def _check_apiservice(client: Client, name: str) -> list[Finding]:
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"
    body = await read_one(client, Call("get", "apiservices", path), dict)
    return check_apiservice(name, body, datetime.now(UTC))


async def _check_quota(client: Client) -> list[Finding]:
    place = StateSettings().quota
    assert place is not None
    path = f"/api/v1/namespaces/{place[0]}/configmaps/{place[1]}"
    body = await read_one(client, Call("get", "configmaps", path), dict)
    return check_quota("/".join(place), None if body is None else body.get("data") or {})


async def _check_ledger(client: Client) -> list[Finding]:
    """The problems of a ledger that is built from the whole cluster now."""
    state = LiveState(client, await choose_settings(client, "default"))
    try:
        await state.start()
        # Nodes that cannot be read have findings of their own.
        found = [each for each in state.problems() if not each.subject.startswith("node/")]
    finally:
        await state.stop()
    if not found:
        return [ok(LEDGER, "every pod's GPUs are known, and no GPU is allocated twice")]
    return [
        note(LEDGER, _UNMARKED, _BIND, each.subject)
        if each.trouble == ProblemKind.MISSING_ALLOCATION.value
        else warning(LEDGER, f"{each.trouble}: {each.detail}", _REMAKE, each.subject)
        for each in found
    ]


async def _check_rights(client: Client) -> list[Finding]:
    answers = [
        (
            f"{verb} {resource}{f' in {space}' if space else ''}",
            use,
            await may_do(client, verb, resource, namespace=space),
        )
        for verb, resource, space, use in _RIGHTS
    ]
    return check_rights(answers)
