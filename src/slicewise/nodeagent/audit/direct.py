"""An audit without an agent: the same comparison, from the same sources, read once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slicewise.diagnose.audit_report import AuditReport
from slicewise.diagnose.evidence import Evidence, SpecFile
from slicewise.dialects import DEFAULT
from slicewise.kube.client import Client
from slicewise.kube.local_pods import local_pods
from slicewise.kube.objects import ObjectReader
from slicewise.kube.reads import list_all
from slicewise.kube.watch import Gone, Seen
from slicewise.kubelet.holders import PodResourcesClient
from slicewise.nodeagent.audit.auditor import Auditor, EvidenceCollector, read_spec_files
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.cdi import CdiSpecs
from slicewise.nodeagent.run import AgentOptions, open_driver
from slicewise.nodeagent.settings import DIALECTS
from slicewise.nodeagent.usage.cgroups import ProcessTable
from slicewise.nodeagent.usage.sampler import UsageSampler
from slicewise.nvml.driver import Driver

# A person waits for the answer.
_TIMEOUT_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class AuditTarget:
    """A node, and where its sources are."""

    node: str
    driver: AgentOptions
    pod_resources: Path
    cdi: Path


async def audit_directly(target: AuditTarget, client: Client, reader: ObjectReader) -> AuditReport:
    """What is wrong on the node, as its driver, its kubelet and the API server tell it."""
    driver = open_driver(target.driver)
    kubelet = PodResourcesClient(target.pod_resources, seconds=_TIMEOUT_SECONDS)
    try:
        views = _Collector(target, (client, reader), driver, kubelet)
        return await Auditor(views).audit()
    finally:
        await kubelet.close()
        driver.close()


class _Collector:
    """Reads pods and GPUs anew for every look."""

    def __init__(
        self,
        target: AuditTarget,
        api: tuple[Client, ObjectReader],
        driver: Driver,
        kubelet: PodResourcesClient,
    ) -> None:
        self._client, reader = api
        self._source = local_pods(reader, target.node)
        self._driver = driver
        self._specs = CdiSpecs(target.cdi)
        self._pods = NodePods(target.node)
        editions = DEFAULT.find_editions(DIALECTS)
        carrying = (each for edition in editions for each in edition.resources if each.carries)
        self._views = EvidenceCollector(
            pods=self._pods,
            sampler=UsageSampler(driver, ProcessTable()),
            kubelet=kubelet,
            # Without a single spec the runtime is one that knows no CDI.
            specs=self._read_specs if self._specs.read() else None,
            resources=DEFAULT.resources,
            served=frozenset(each.name for each in carrying),
        )

    async def __call__(self) -> Evidence:
        hardware = self._driver.hardware()
        self._pods.set_gpus(hardware.gpus, hardware.links)
        pods = await list_all(self._client, self._source)
        living = {pod.pod.uid for pod in pods}
        left = [each.uid for each in self._pods.pods() if each.uid not in living]
        self._pods.apply([*(Gone(uid, 0) for uid in left), *(Seen(pod) for pod in pods)])
        return await self._views.collect()

    def _read_specs(self) -> tuple[SpecFile, ...]:
        return tuple(read_spec_files(self._specs, self._pods.gpus()))
