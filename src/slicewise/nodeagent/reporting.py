"""The node's usage as the report that an agent keeps the metrics API informed with.

Pods whose cards NVIDIA's own device plugin gave away carry no record; of them the kubelet tells.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from slicewise.kubelet.holders import Holder
from slicewise.model import FULL
from slicewise.nodeagent.usage import CardUsage, ContainerUsage, HeldCard, NodeUsage
from slicewise.reports import (
    CardReport,
    ContainerReport,
    DeviceReport,
    NodeReport,
    PodReport,
    Use,
)


def write_report(usage: NodeUsage, driver: str, why: str = "") -> NodeReport:
    """The whole state of the node; `why` says why cards are missing, where they are."""
    pods: dict[str, list[ContainerUsage]] = {}
    for each in usage.containers:
        if each.cards:
            pods.setdefault(each.tenant.uid, []).append(each)
    return NodeReport(
        node=usage.node,
        cards=tuple(_report_card(each) for each in usage.cards),
        pods=tuple(_report_pod(containers) for containers in pods.values()),
        driver=driver,
        why=why,
    )


def _report_card(each: CardUsage) -> CardReport:
    card, gpu, load = each.card, each.card.gpu, each.load
    return CardReport(
        uuid=gpu.uuid,
        model=gpu.model,
        bus=card.bus,
        brand=card.brand,
        index=gpu.index,
        memory_mib=gpu.memory,
        healthy=gpu.healthy,
        why=card.trouble,
        use=None if load is None else Use(load.memory, load.cores),
        temperature=None if load is None else load.temperature,
        power_milliwatts=None if load is None else load.power_milliwatts,
    )


def _report_pod(containers: list[ContainerUsage]) -> PodReport:
    tenant = containers[0].tenant
    return PodReport(
        namespace=tenant.namespace,
        name=tenant.name,
        uid=tenant.uid,
        containers=tuple(
            ContainerReport(
                name=each.container.name,
                devices=tuple(_report_device(held) for held in each.cards),
            )
            for each in containers
        ),
    )


def _report_device(held: HeldCard) -> DeviceReport:
    whole = held.promised.cores == FULL
    return DeviceReport(
        card=held.card.gpu.uuid,
        cores=None if whole else held.promised.cores,
        memory_mib=None if whole else held.promised.memory,
        use=Use(held.memory, held.cores) if held.answers else None,
    )


NVIDIA: Final = "nvidia.com/gpu"
_KINDS: Final = (f"{NVIDIA}.", "nvidia.com/mig-")


def add_holders(report: NodeReport, holders: Iterable[Holder]) -> NodeReport:
    """The report with the pods that the kubelet alone knows of, each with every card it holds."""
    known = {pod.key for pod in report.pods}
    found: dict[tuple[str, str], list[ContainerReport]] = {}
    for holder in holders:
        if f"{holder.namespace}/{holder.pod}" in known:
            continue
        ids = sorted(
            each for name, held in holder.units.items() if _is_nvidia(name) for each in held
        )
        if ids:
            devices = tuple(_read_device(each) for each in ids)
            container = ContainerReport(name=holder.container, devices=devices)
            found.setdefault((holder.namespace, holder.pod), []).append(container)
    pods = tuple(
        PodReport(namespace=namespace, name=name, containers=tuple(found[namespace, name]))
        for namespace, name in sorted(found)
    )
    return msgspec.structs.replace(report, pods=(*report.pods, *pods)) if pods else report


def _is_nvidia(resource: str) -> bool:
    return resource == NVIDIA or resource.startswith(_KINDS)


def _read_device(unit: str) -> DeviceReport:
    # Replicas of a card that the plugin shares end in `::` and a number.
    card = unit.partition("::")[0]
    return DeviceReport(card=card, id="" if unit == card else unit)
