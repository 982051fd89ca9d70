"""The node's report, which the agent sends to the metrics API and serves at `/usage/gpus`.

Pods whose GPUs NVIDIA's own device plugin allocated carry no record; the kubelet lists those.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from slicewise import reports
from slicewise.kube.errors import KubeError
from slicewise.kube.secrets import SecretClient
from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.holders import Holder, HolderSource
from slicewise.model import FULL
from slicewise.nodeagent.gpus.gpu_watch import GpuWatch
from slicewise.nodeagent.usage.node_usage import (
    ContainerUsage,
    GpuUsage,
    HeldGpu,
    NodeUsage,
    StrayProcess,
    Trespass,
)
from slicewise.nodeagent.usage.sampler import UsageMeter

_REPORT_SECONDS: Final = 2.0
_KEY: Final = "ca-cert.pem"
NVIDIA: Final = "nvidia.com/gpu"
_KINDS: Final = (f"{NVIDIA}.", "nvidia.com/mig-")


def write_report(usage: NodeUsage, driver: str, why: str = "") -> reports.NodeReport:
    """The whole state of the node; `why` says why GPUs are missing, where they are."""
    pods: dict[str, list[ContainerUsage]] = {}
    for each in usage.containers:
        if each.gpus:
            pods.setdefault(each.pod.uid, []).append(each)
    return reports.NodeReport(
        node=usage.node,
        gpus=tuple(_report_gpu(each) for each in usage.gpus),
        pods=tuple(_report_pod(containers) for containers in pods.values()),
        driver=driver,
        why=why,
        processes=tuple(_report_processes(usage)),
        sampled_at=usage.at,
    )


def _report_gpu(each: GpuUsage) -> reports.GpuReport:
    device, gpu, load = each.device, each.device.gpu, each.load
    return reports.GpuReport(
        uuid=gpu.uuid,
        model=gpu.model,
        bus=device.bus,
        brand=device.brand,
        index=gpu.index,
        memory_mib=gpu.memory,
        healthy=gpu.healthy,
        why=device.trouble,
        use=None if load is None else reports.MeasuredUse(load.memory, load.cores),
        temperature=None if load is None else load.temperature,
        power_milliwatts=None if load is None else load.power_milliwatts,
        minor=gpu.minor,
        allocated_cores=each.cores,
        allocated_memory_mib=each.memory,
        processes=None if load is None else len(load.processes),
    )


def _report_pod(containers: list[ContainerUsage]) -> reports.PodReport:
    pod = containers[0].pod
    return reports.PodReport(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        containers=tuple(
            reports.ContainerReport(
                name=each.container.name,
                devices=tuple(_report_device(held) for held in each.gpus),
                id=each.container.id or "",
            )
            for each in containers
        ),
    )


def _report_device(held: HeldGpu) -> reports.DeviceReport:
    whole = held.allocated.cores == FULL
    return reports.DeviceReport(
        gpu=held.device.gpu.uuid,
        cores=None if whole else held.allocated.cores,
        memory_mib=None if whole else held.allocated.memory,
        use=reports.MeasuredUse(held.memory, held.cores) if held.answers else None,
        pids=held.pids,
    )


def _report_processes(usage: NodeUsage) -> Iterator[reports.ProcessReport]:
    for stray in usage.strays:
        yield _report_process(stray, stray.origin.value, stray.pod or "")
    for each in usage.trespasses:
        yield _report_process(each, "trespass", each.pod.full_name, each.container or "")


def _report_process(
    each: StrayProcess | Trespass, origin: str, pod: str, container: str = ""
) -> reports.ProcessReport:
    return reports.ProcessReport(
        gpu=each.gpu.uuid,
        pid=each.process.pid,
        memory_mib=each.process.memory,
        command=each.command,
        origin=origin,
        pod=pod,
        container=container,
    )


def add_holders(report: reports.NodeReport, holders: Iterable[Holder]) -> reports.NodeReport:
    """The report with the pods that the kubelet alone knows of, each with every GPU it holds."""
    known = {pod.key for pod in report.pods}
    found: dict[tuple[str, str], list[reports.ContainerReport]] = {}
    for holder in holders:
        if f"{holder.namespace}/{holder.pod}" in known:
            continue
        ids = (
            each
            for name, held in holder.units.items()
            if name == NVIDIA or name.startswith(_KINDS)
            for each in held
        )
        devices = tuple(_read_device(each) for each in sorted(ids))
        if devices:
            container = reports.ContainerReport(name=holder.container, devices=devices)
            found.setdefault((holder.namespace, holder.pod), []).append(container)
    pods = tuple(
        reports.PodReport(namespace=namespace, name=name, containers=tuple(found[namespace, name]))
        for namespace, name in sorted(found)
    )
    return msgspec.structs.replace(report, pods=(*report.pods, *pods)) if pods else report


def _read_device(unit: str) -> reports.DeviceReport:
    # Replicas of a GPU that the plugin shares end in `::` and a number.
    gpu = unit.partition("::")[0]
    return reports.DeviceReport(gpu=gpu, id="" if unit == gpu else unit)


class ReportSource:
    """The node's report as of now, for whoever asks and for the metrics API."""

    def __init__(self, meter: UsageMeter, watch: GpuWatch, kubelet: HolderSource) -> None:
        self._meter = meter
        self._watch = watch
        self._kubelet = kubelet
        self._holders: Iterable[Holder] = ()

    async def read(self) -> reports.NodeReport:
        """Usage joined with the pods that the kubelet alone knows of."""
        # While the kubelet does not answer, what it last listed still holds.
        with contextlib.suppress(KubeletError):
            self._holders = await self._kubelet.list()
        hardware = self._watch.hardware
        driver = "" if hardware is None else hardware.driver
        return add_holders(write_report(self._meter.usage(), driver), self._holders)


async def keep_reporting(
    reporter: reports.Reporter | reports.ReplicaReporters, source: ReportSource
) -> None:
    """Give the metrics API a fresh report every two seconds, until cancelled."""
    while True:
        reporter.update(await source.read())
        await asyncio.sleep(_REPORT_SECONDS)


class SecretCredentials:
    """The server's authority from its Secret, read for every connection, and a token's file."""

    def __init__(self, secrets: SecretClient, token: Path) -> None:
        self._secrets = secrets
        self._token = reports.FileCredentials(token, token)

    async def tls(self) -> ssl.SSLContext:
        """A context that trusts the authority as it is now."""
        try:
            found = await self._secrets.read()
        except KubeError as error:
            words = "cannot read the server's Secret; pass --report-ca"
            raise reports.ReportError(f"{words}: {error}") from error
        if found is None or _KEY not in found.data:
            raise reports.ReportError(f"the server's Secret has no {_KEY} yet")
        return reports.trust(found.data[_KEY].decode(errors="replace"))

    async def token(self) -> str | None:
        return await self._token.token()
