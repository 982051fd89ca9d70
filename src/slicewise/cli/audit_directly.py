"""An audit without an agent: the same comparison, from the same sources, read once."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from slicewise.cli.cluster_access import CannotTell, ClusterFlags, open_reader, run_connected
from slicewise.diagnose.audit_report import AuditReport
from slicewise.diagnose.evidence import Evidence, SpecFile
from slicewise.dialects import DEFAULT
from slicewise.kube.client import Client
from slicewise.kube.local_pods import local_pods
from slicewise.kube.reads import list_all
from slicewise.kube.watch import Gone, Seen
from slicewise.kubelet.holders import PodResourcesClient
from slicewise.nodeagent.audit.auditor import Auditor, EvidenceCollector
from slicewise.nodeagent.audit.spec_files import read_spec_files
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.cdi import CdiSpecs
from slicewise.nodeagent.run import AgentOptions, open_driver
from slicewise.nodeagent.settings import DIALECTS, AgentSettings
from slicewise.nodeagent.usage.cgroups import ProcessTable
from slicewise.nodeagent.usage.sampler import UsageSampler
from slicewise.nvml.driver import Driver

# A person waits for the answer.
_PATIENCE_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class AuditTarget:
    """A node, and where its sources are."""

    node: str
    reach: ClusterFlags
    driver: AgentOptions
    pod_resources: Path
    cdi: Path


def read_audit_target(flags: Mapping[str, Any]) -> AuditTarget:
    """The node that the flags name."""
    node = flags["node_name"] or socket.gethostname().lower()
    source, _, file = flags["nvml"].partition(":")
    if source not in ("library", "simulated"):
        raise click.BadParameter(
            f"{flags['nvml']!r}: expected library or simulated:FILE", param_hint="--nvml"
        )
    command = AgentOptions(
        settings=AgentSettings(node=node),
        simulated=source == "simulated",
        driver_file=Path(file) if file else None,
    )
    reach = ClusterFlags(flags["kubeconfig"], flags["context"])
    return AuditTarget(node, reach, command, flags["pod_resources"], flags["cdi"])


def audit_directly(place: AuditTarget) -> AuditReport:
    """What is wrong on the node; raises Trouble when a source is missing altogether."""

    async def run(client: Client) -> AuditReport:
        driver = open_driver(place.driver)
        kubelet = PodResourcesClient(place.pod_resources, seconds=_PATIENCE_SECONDS)
        try:
            return await Auditor(_Collector(place, client, driver, kubelet)).audit()
        finally:
            await kubelet.close()
            driver.close()

    return run_connected(place.reach, run, CannotTell)


class _Collector:
    """Reads pods and GPUs anew for every look."""

    def __init__(
        self, place: AuditTarget, client: Client, driver: Driver, kubelet: PodResourcesClient
    ) -> None:
        self._source = local_pods(open_reader(), place.node)
        self._client = client
        self._driver = driver
        self._specs = CdiSpecs(place.cdi)
        self._pods = NodePods(place.node)
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
