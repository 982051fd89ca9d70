"""What doctor says of processes: the agents of the nodes, and the extender at its address."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from slicewise.diagnose.findings import Finding, note, ok, problem, warning
from slicewise.diagnose.services import check_certificates
from slicewise.dialects import GPUS
from slicewise.model import NodeDetails, count

AGENTS: Final = "agents"
EXTENDER: Final = "extender"
_ONE_VERSION: Final = "let agents, extender and this command have one version"


@dataclass(frozen=True, slots=True)
class AgentAbout:
    """What an agent says of itself."""

    version: str
    identity: str = ""
    ready: bool = True


@dataclass(frozen=True, slots=True)
class ExtenderAbout:
    """How an extender answered; `error` says why it did not, `ready` is the status of its probe."""

    url: str
    version: str = ""
    ready: int = 200
    error: str = ""
    certificate: bytes | None = None
    certificate_error: str = ""


def check_agents(
    nodes: Sequence[NodeDetails], answers: Sequence[AgentAbout | None], version: str, port: int
) -> list[Finding]:
    """Whether the agents of these nodes answer, in this version."""
    here = sum(each is not None for each in answers)
    findings = [ok(AGENTS, f"answer on {here} of {count(len(nodes), 'node')}")] if here else []
    for node, answer in zip(nodes, answers, strict=True):
        findings += judge_agent(node, answer, version, port)
    return findings


def judge_agent(
    node: NodeDetails, answer: AgentAbout | None, version: str, port: int
) -> Iterator[Finding]:
    """What is to be said of one node's agent."""
    name = node.name
    if answer is None:
        if GPUS in node.notice.annotations:
            what = f"has published GPUs and is silent on port {port}"
            fix = "look at the agent's pod there, and that it listens on the node's own address"
            yield warning(AGENTS, what, fix, name)
        else:
            fix = "run the Slicewise agent there, if it is to measure usage and hand out GPUs"
            yield note(AGENTS, f"no agent of Slicewise answers on port {port}", fix, name)
        return
    if not answer.ready:
        what = "is not ready: the kubelet does not know its plugins, or pods are not known to it"
        yield warning(AGENTS, what, "look at the agent's log there", name)
    if answer.identity == "match":
        what = "tells containers apart by size and age, because the runtime takes no CDI devices"
        yield note(AGENTS, what, "turn CDI on in the runtime, then restart the agent", name)
    if answer.version != version:
        yield note(AGENTS, f"agent is {answer.version}, this is {version}", _ONE_VERSION, name)


def check_extender(about: ExtenderAbout, version: str, now: datetime) -> list[Finding]:
    """Whether the extender at this address is ready, in this version, with a good certificate."""
    url = about.url
    fix = "look at its log; /leadz is 200 once it has listed everything and leads"
    if about.error:
        return [problem(EXTENDER, f"{url} does not answer: {about.error}", fix)]
    if about.version == version:
        findings = [ok(EXTENDER, f"{url} is Slicewise {version}")]
    else:
        what = f"{url} is {about.version[:40]!r}, this is {version}"
        findings = [note(EXTENDER, what, _ONE_VERSION)]
    if about.ready == 200:
        findings.append(ok(EXTENDER, f"{url} is ready"))
    else:
        findings.append(problem(EXTENDER, f"{url} is not ready: {about.ready}", fix))
    if about.certificate_error:
        what = f"{url} shows no certificate: {about.certificate_error}"
        findings.append(note(EXTENDER, what))
    if about.certificate is not None:
        renew = "renew it; the extender reads its files again when they change"
        findings += check_certificates(f"certificate of {url}", about.certificate, now, renew)
    return findings
