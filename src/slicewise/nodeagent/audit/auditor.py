"""Collects the evidence of an audit on a running node, twice where it finds anything.

The views are read one after another while pods come and go; only what is still wrong at a second
look is told.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from slicewise.diagnose import evidence
from slicewise.diagnose.audit import audit
from slicewise.diagnose.audit_report import AuditReport, AuditVerdict, confirm
from slicewise.dialects import DEFAULT
from slicewise.dialects.shared.injection import VISIBLE
from slicewise.kube.client import Client
from slicewise.kube.local_pods import LocalPod, LocalPodBody
from slicewise.kube.reads import list_all
from slicewise.kube.watch import Gone, Seen, WatchSource
from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.holders import Holder, HolderSource
from slicewise.model import Role
from slicewise.nodeagent.agent import Agent
from slicewise.nodeagent.limits.detector import LimitDetector, LimitFindings
from slicewise.nodeagent.node_pods import NodePod, NodePods
from slicewise.nodeagent.plugin.cdi import CdiSpecs, name_units
from slicewise.nodeagent.settings import DIALECTS, IdentityMode
from slicewise.nodeagent.usage.cgroups import ProcessTable
from slicewise.nodeagent.usage.node_usage import NodeUsage, StrayProcess, Trespass
from slicewise.nodeagent.usage.sampler import UsageMeter, UsageSampler
from slicewise.nvml.driver import Driver

PAUSE_SECONDS: Final = 2.0

_NODE: Final = re.compile(r".*/nvidia(\d+)")
_VISIBLE: Final = f"{VISIBLE}="
# These words of NVIDIA's runtime name no GPU.
_NO_GPUS: Final = frozenset({"", "none", "void"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceCollector:
    """Where each view of the node comes from.

    `specs` reads the CDI folder; without it, as on a runtime without CDI, no spec is expected.
    `gaps` says what else cannot be known now, such as an API server that does not answer.
    `conflicts` tells which pods would be refused their start, and why.
    """

    pods: NodePods
    sampler: UsageSampler
    kubelet: HolderSource
    specs: Callable[[], Sequence[evidence.SpecFile]] | None
    resources: frozenset[str]
    served: frozenset[str]
    gaps: Callable[[], Sequence[str]] = tuple
    conflicts: Callable[[], Mapping[str, str]] = dict
    detector: LimitDetector | None = None
    """What knows of containers whose limits do not hold; none without an agent."""

    async def collect(self) -> evidence.Evidence:
        """What every view says now."""
        holders, specs, gaps = None, None, list(self.gaps())
        if not await asyncio.to_thread(self.sampler.sample):
            gaps.append("the driver: it does not say what runs on the GPUs")
        try:
            holders = tuple(await self.kubelet.list())
        except KubeletError as error:
            gaps.append(f"the kubelet: {error}")
        if self.specs is not None:
            try:
                specs = tuple(await asyncio.to_thread(self.specs))
            except OSError as error:
                gaps.append(f"the CDI folder: {error}")
        usage = UsageMeter(self.pods, self.sampler).usage()
        found = LimitFindings() if self.detector is None else self.detector.look(usage)
        return build_evidence(
            usage,
            self.pods.pods(),
            holders,
            specs=specs,
            resources=self.resources,
            served=self.served,
            departed=self.pods.departed(),
            conflicts=self.conflicts(),
            unlimited=[
                evidence.UnlimitedUse(each.owner, each.gpu, each.pid, each.isolation)
                for each in found.unlimited
            ],
            overuses=[
                evidence.ComputeUse(each.owner, each.gpu, each.used, each.ceiling)
                for each in found.overuses
            ],
            gaps=tuple(gaps),
        )


def build_evidence(
    usage: NodeUsage, pods: Iterable[NodePod], holders: Iterable[Holder] | None, **views: Any
) -> evidence.Evidence:
    """What the driver, the API server and the kubelet say, in the audit's own values."""
    strays = [_read_process(each, origin=each.origin, pod=each.pod) for each in usage.strays]
    trespasses = [
        _read_process(each, owner="/".join(filter(None, (each.pod.full_name, each.container))))
        for each in usage.trespasses
    ]
    return evidence.Evidence(
        node=usage.node,
        gpus=[
            evidence.AuditedGpu(each.device.gpu, each.cores, each.memory, each.device.trouble)
            for each in usage.gpus
        ],
        processes=strays + trespasses,
        uses=[
            evidence.ContainerUse(
                f"{each.pod.full_name}/{each.container.name}",
                held.device.gpu,
                held.memory,
                held.allocated.memory,
                bool(each.pod.isolation(each.container.name)),
            )
            for each in usage.containers
            for held in each.gpus
        ],
        pods=[_read_pod(each) for each in pods],
        holders=None
        if holders is None
        else [
            evidence.UnitHolder(each.namespace, each.pod, each.container, each.units)
            for each in holders
        ],
        name_spec=name_units,
        **views,
    )


def _read_process(each: StrayProcess | Trespass, **facts: Any) -> evidence.AuditedProcess:
    process = each.process
    return evidence.AuditedProcess(each.gpu, process.pid, process.memory, each.command, **facts)


def _read_pod(pod: NodePod) -> evidence.AuditedPod:
    running = tuple(each.name for each in pod.living if each.running and each.role is not Role.INIT)
    return evidence.AuditedPod(
        pod.uid,
        pod.namespace,
        pod.name,
        pod.allocation,
        pod.charges,
        running,
        pod.trouble,
        pod.standing,
    )


def collect_from(
    agent: Agent,
    kubelet: HolderSource,
    sampler: UsageSampler,
    detector: LimitDetector | None = None,
) -> EvidenceCollector:
    """Everything that an audit of the agent's node looks at."""
    read_specs = partial(read_spec_files, agent.services.specs, agent.pods)

    def find_gaps() -> tuple[str, ...]:
        return () if agent.synced else ("the API server: it has not told of the node's pods yet",)

    return EvidenceCollector(
        pods=agent.pods,
        sampler=sampler,
        kubelet=kubelet,
        specs=read_specs if agent.identity is IdentityMode.CDI else None,
        resources=agent.dialects.resources,
        served=frozenset(each.name for _, each in agent.plan.devices if each.carries),
        gaps=find_gaps,
        conflicts=agent.gate.conflicts,
        detector=detector,
    )


class Auditor:
    """Audits a node when asked; audits that overlap share nothing but the views."""

    def __init__(
        self,
        collect: Callable[[], Awaitable[evidence.Evidence]],
        *,
        pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._collect = collect
        self._pause = pause
        self._pause_seconds = pause_seconds

    async def audit(self) -> AuditReport:
        """What is wrong on the node, and stays so for two looks."""
        first = audit(await self._collect())
        if first.verdict is not AuditVerdict.FINDINGS:
            return first
        await self._pause(self._pause_seconds)
        return confirm(first, audit(await self._collect()))


def read_spec_files(specs: CdiSpecs, pods: NodePods) -> list[evidence.SpecFile]:
    """Every spec of ours; one that cannot be read says so."""
    minors = {device.gpu.minor: device.gpu.uuid for device in pods.gpus()}
    files = []
    for name, owner in specs.read().items():
        if owner is None:
            files.append(evidence.SpecFile(name, trouble="it cannot be read as a spec of ours"))
        else:
            found = frozenset(_find_gpus(specs.edits(name), minors))
            files.append(evidence.SpecFile(name, owner.uid, owner.container, found or None))
    return files


def _find_gpus(edits: Mapping[str, Any], minors: Mapping[int, str]) -> Iterator[str]:
    """Every GPU that device nodes or the environment name; one unknown here by that name."""
    for node in edits.get("deviceNodes", ()):
        path = str(node.get("hostPath") or node.get("path"))
        if found := _NODE.fullmatch(path):
            yield minors.get(int(found[1]), path)
    for entry in edits.get("env", ()):
        if str(entry).startswith(_VISIBLE):
            named = str(entry).removeprefix(_VISIBLE).split(",")
            yield from (each for each in named if each not in _NO_GPUS)


class DirectCollector:
    """The evidence without an agent: pods, GPUs, units and specs are read again for every look."""

    def __init__(
        self,
        pods: tuple[Client, WatchSource[LocalPodBody, LocalPod]],
        known: NodePods,
        specs: CdiSpecs,
        *,
        driver: Driver,
        kubelet: HolderSource,
    ) -> None:
        self._client, self._source = pods
        self._driver = driver
        self._pods = known
        editions = DEFAULT.find_editions(DIALECTS)
        carrying = (each for edition in editions for each in edition.resources if each.carries)
        self._views = EvidenceCollector(
            pods=self._pods,
            sampler=UsageSampler(driver, ProcessTable()),
            kubelet=kubelet,
            # Without a single spec the runtime is one that knows no CDI.
            specs=partial(read_spec_files, specs, self._pods) if specs.read() else None,
            resources=DEFAULT.resources,
            served=frozenset(each.name for each in carrying),
        )

    async def __call__(self) -> evidence.Evidence:
        hardware = self._driver.hardware()
        self._pods.set_gpus(hardware.gpus, hardware.links)
        pods = await list_all(self._client, self._source)
        living = {pod.pod.uid for pod in pods}
        left = [each.uid for each in self._pods.pods() if each.uid not in living]
        self._pods.apply([*(Gone(uid, 0) for uid in left), *(Seen(pod) for pod in pods)])
        return await self._views.collect()
