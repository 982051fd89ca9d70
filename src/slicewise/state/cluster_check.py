"""Collects what doctor looks at, and hands it to the rules; nothing is changed."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from slicewise import __version__
from slicewise.diagnose import services
from slicewise.diagnose.agents import AGENTS, check_agents, check_extender
from slicewise.diagnose.findings import Finding, note, problem, warning
from slicewise.diagnose.nodes import check_nodes, find_resources
from slicewise.diagnose.scheduler import (
    SCHEDULER,
    check_config,
    check_flags,
    check_policy_flags,
    check_scheduler_names,
    read_config,
)
from slicewise.kube.access_reviews import may_do
from slicewise.kube.binding_labels import ServerVersion
from slicewise.kube.client import Call, Client
from slicewise.kube.errors import KubeError, RefusedError
from slicewise.kube.node_details import list_node_details
from slicewise.kube.reads import read_one
from slicewise.kube.scheduler_configs import NAMESPACE, list_config_texts, list_scheduler_flags
from slicewise.kube.watch import Seen, WatchEvent
from slicewise.model import NodeDetails, NodeNotice, Pod
from slicewise.state.live import LiveState
from slicewise.state.probes import ask_agents, ask_extender
from slicewise.state.settings import StateSettings, choose_settings, open_reader

APISERVICES: Final = {
    "v1alpha1.metrics.nvidia.com": "kubectl get podresources knows nothing",
    "v1alpha1.metrics.slicewise.io": "no load is measured, and the policy load chooses without it",
}
"""The groups of the metrics API, and what is missing without each."""
_RIGHTS: Final = (
    ("list", "nodes", "", "every command"),
    ("list", "pods", "", "every command"),
    ("list", "configmaps", "kube-system", "the quota in why and what-if"),
    ("patch", "nodes", "", "cordon"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCheck:
    """What to check beside the cluster's own objects."""

    agent_port: int
    """Where the nodes' agents listen."""
    warn: Callable[[str], None]
    """Hears what could not be read."""
    scheduler_config: tuple[str, str] | None = None
    """Name and text of the scheduler's configuration; none looks for it in the cluster."""
    extender: str | None = None
    """Address of an extender to check too."""


async def check_cluster(client: Client, what: ClusterCheck) -> list[Finding]:
    """All findings, in the order in which they are shown."""
    nodes = await list_node_details(client, open_reader())
    findings, with_gpus = check_nodes(nodes)
    findings += await _check_agents(client, with_gpus, what.agent_port)
    findings += await _try(SCHEDULER, _check_schedulers(client, what.scheduler_config, nodes))
    if what.extender:
        about = await ask_extender(what.extender)
        findings += check_extender(about, __version__, datetime.now(UTC))
    for name, loss in APISERVICES.items():
        findings += await _try(services.METRICS, _check_apiservice(client, name, loss))
    findings += await _try(services.QUOTA, _check_quota(client))
    findings += await _try(services.LEDGER, _check_ledger(client, what.warn))
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
        what, fix = (
            f"cannot be asked: {error.message}",
            "run the metrics API: the right to get nodes/proxy also runs code in every pod",
        )
        return [note(AGENTS, what, fix)]
    return check_agents(nodes, answers, __version__, port)


async def _check_schedulers(
    client: Client, file: tuple[str, str] | None, nodes: Sequence[NodeDetails]
) -> list[Finding]:
    texts = [file] if file is not None else await list_config_texts(client)
    resources, minor = find_resources(nodes), await _read_minor(client)
    read = [(read_config(text), where) for where, text in texts]
    if file is not None and read[0][0] is None:
        fix = "pass what kube-scheduler has as --config or --policy-config-file"
        return [problem(SCHEDULER, f"{file[0]} is no scheduler configuration", fix)]
    findings = []
    for found, where in read:
        if found is not None:
            findings += found.check_form(minor, where)
            findings += check_config(found.config, resources, len(nodes), where)
    waiting = Call("list", "pods", "/api/v1/pods", {"fieldSelector": "spec.nodeName="})
    pods = (await read_one(client, waiting, dict) or {}).get("items") or ()
    findings += check_scheduler_names([each.config for each, _ in read if each is not None], pods)
    flags = await list_scheduler_flags(client)
    findings += check_policy_flags(flags, minor)
    return findings or list(check_flags(flags, NAMESPACE))


async def _read_minor(client: Client) -> int | None:
    """The minor version of the server's Kubernetes 1; None where it does not say one."""
    told = await read_one(client, Call("get", "version", "/version"), ServerVersion)
    return None if told is None else told.release[1] or None


async def _check_apiservice(client: Client, name: str, loss: str) -> list[Finding]:
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"
    body = await read_one(client, Call("get", "apiservices", path), dict)
    return services.check_apiservice(name, body, datetime.now(UTC), loss)


async def _check_quota(client: Client) -> list[Finding]:
    place = StateSettings().quota
    assert place is not None
    path = f"/api/v1/namespaces/{place[0]}/configmaps/{place[1]}"
    body = await read_one(client, Call("get", "configmaps", path), dict)
    return services.check_quota("/".join(place), None if body is None else body.get("data") or {})


async def _check_ledger(client: Client, warn: Callable[[str], None]) -> list[Finding]:
    """The problems of a ledger that is built from the whole cluster now."""
    state = LiveState(client, await choose_settings(client, "default", warn))
    waiting = WaitingPodList()
    state.listener = waiting
    try:
        await state.start()
        return [*services.check_ledger(state.problems()), *services.check_names(waiting.pods)]
    finally:
        await state.stop()


class WaitingPodList:
    """The pods that are on no node, as they were listed."""

    def __init__(self) -> None:
        self.pods: list[Pod] = []

    def on_nodes(self, changes: Sequence[WatchEvent[NodeNotice]]) -> None:
        """Nodes do not matter."""

    def on_pods(self, changes: Sequence[WatchEvent[Pod]]) -> None:
        self.pods += [
            each.value for each in changes if isinstance(each, Seen) and each.value.node is None
        ]


async def _check_rights(client: Client) -> list[Finding]:
    answers = []
    for verb, resource, space, use in _RIGHTS:
        allowed = await may_do(client, verb, resource, namespace=space)
        answers.append((f"{verb} {resource}{f' in {space}' if space else ''}", use, allowed))
    return services.check_rights(answers)
