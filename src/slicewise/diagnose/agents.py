"""The check-up of processes: the agents of the nodes, and the extender at its address."""

import asyncio
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

import msgspec

from slicewise import __version__
from slicewise.diagnose.findings import Finding, note, ok, problem, warning
from slicewise.diagnose.services import check_certificates
from slicewise.dialects import GPUS
from slicewise.kube.client import Client
from slicewise.kube.errors import KubeError, RefusedError
from slicewise.kube.node_proxy import read_page
from slicewise.model import NodeDetails

AGENTS: Final = "agents"
EXTENDER: Final = "extender"
_SECONDS: Final = 5.0
_AT_ONCE: Final = 32
_FORBIDDEN: Final = (401, 403)


class AgentAbout(msgspec.Struct, frozen=True):
    """What an agent says of itself."""

    version: str
    identity: str = ""
    ready: bool = True


async def check_agents(client: Client, machines: Sequence[NodeDetails], port: int) -> list[Finding]:
    """Whether the agents of these nodes answer, in this version."""
    if not machines:
        return []
    turns = asyncio.Semaphore(_AT_ONCE)

    async def ask(machine: NodeDetails) -> AgentAbout | Exception:
        async with turns:
            try:
                page = await read_page(client, machine.name, port, "/agent", seconds=_SECONDS)
                return msgspec.json.decode(page, type=AgentAbout)
            except (KubeError, msgspec.DecodeError) as error:
                return error

    answers = await asyncio.gather(*(ask(machine) for machine in machines))
    denied = [
        each for each in answers if isinstance(each, RefusedError) and each.code in _FORBIDDEN
    ]
    if denied:
        fix = "ask for get on nodes/proxy"
        return [note(AGENTS, f"cannot be asked: {denied[0].message}", fix)]
    here = sum(isinstance(each, AgentAbout) for each in answers)
    findings = [ok(AGENTS, f"answer on {here} of {len(machines)} nodes")] if here else []
    for machine, answer in zip(machines, answers, strict=True):
        findings += judge_agent(machine, answer, port)
    return findings


def judge_agent(
    machine: NodeDetails, answer: AgentAbout | Exception, port: int
) -> Iterator[Finding]:
    """What is to be said of one node's agent."""
    name = machine.name
    if isinstance(answer, Exception):
        if GPUS in machine.notice.annotations:
            what = f"has published GPUs and is silent on port {port}"
            fix = "look at the agent's pod there, and that it listens on the node's own address"
            yield warning(AGENTS, what, fix, name)
        else:
            fix = "run the Slicewise agent there, if it is to measure use and isolate pods"
            yield note(AGENTS, f"no agent of Slicewise answers on port {port}", fix, name)
        return
    if not answer.ready:
        what = "is not ready: the kubelet does not know its plugins, or pods are not known to it"
        yield warning(AGENTS, what, "look at the agent's log there", name)
    if answer.identity == "match":
        what = "tells containers apart by size and age, because the runtime takes no CDI devices"
        yield note(AGENTS, what, "turn CDI on in the runtime, then restart the agent", name)
    if answer.version != __version__:
        fix = "let agents, extender and this command have one version"
        yield note(AGENTS, f"agent is {answer.version}, this is {__version__}", fix, name)


async def check_extender(url: str, version: str, now: datetime) -> list[Finding]:
    """Whether the extender at this address is ready, in this version, with a good certificate."""
    return await asyncio.to_thread(_check_extender, url.rstrip("/"), version, now)


def _check_extender(url: str, version: str, now: datetime) -> list[Finding]:
    fix = "look at its log; /readyz is 200 once it has listed everything and leads"
    # Only whether it answers is asked here; whom it shows itself as is looked at below.
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(f"{url}/version", timeout=_SECONDS, context=trust) as answer:
            said = answer.read(200).decode(errors="replace").strip()
        findings = [_judge_version(url, said, version), _ask_ready(url, trust, fix)]
    except (OSError, ValueError) as error:
        return [problem(EXTENDER, f"{url} does not answer: {error}", fix)]
    parts = urlsplit(url)
    if parts.scheme != "https":
        return findings
    try:
        pem = ssl.get_server_certificate((parts.hostname or "", parts.port or 443))
    except OSError as error:
        return [*findings, note(EXTENDER, f"{url} shows no certificate: {error}")]
    renew = "renew it; the extender reads its files again when they change"
    return [*findings, *check_certificates(f"certificate of {url}", pem.encode(), now, renew)]


def _judge_version(url: str, said: str, version: str) -> Finding:
    if said == version:
        return ok(EXTENDER, f"{url} is Slicewise {said}")
    fix = "let agents, extender and this command have one version"
    return note(EXTENDER, f"{url} is {said[:40]!r}, this is {version}", fix)


def _ask_ready(url: str, trust: ssl.SSLContext, fix: str) -> Finding:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=_SECONDS, context=trust):
            return ok(EXTENDER, f"{url} is ready")
    except urllib.error.HTTPError as error:
        error.close()
        return problem(EXTENDER, f"{url} is not ready: {error.code}", fix)
