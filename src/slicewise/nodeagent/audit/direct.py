"""An audit without an agent: the same comparison, from the same sources, read once."""

from slicewise.diagnose.evidence import Evidence, SpecFile
from slicewise.dialects import DEFAULT
from slicewise.kube.client import Client
from slicewise.kube.local_pods import LocalPod, LocalPodBody
from slicewise.kube.reads import list_all
from slicewise.kube.watch import Gone, Seen, WatchSource
from slicewise.kubelet.holders import HolderSource
from slicewise.nodeagent.audit.auditor import EvidenceCollector, read_spec_files
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.cdi import CdiSpecs
from slicewise.nodeagent.settings import DIALECTS
from slicewise.nodeagent.usage.cgroups import ProcessTable
from slicewise.nodeagent.usage.sampler import UsageSampler
from slicewise.nvml.driver import Driver


class DirectCollector:
    """Reads pods, GPUs, units and specs anew for every look."""

    def __init__(
        self,
        pods: tuple[Client, WatchSource[LocalPodBody, LocalPod]],
        node: str,
        specs: CdiSpecs,
        *,
        driver: Driver,
        kubelet: HolderSource,
    ) -> None:
        self._client, self._source = pods
        self._driver = driver
        self._specs = specs
        self._pods = NodePods(node)
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
