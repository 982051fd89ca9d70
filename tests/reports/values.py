"""Reports of small nodes."""

from slicewise.reports import CardReport, ContainerReport, DeviceReport, NodeReport, PodReport


def card(uuid="GPU-a", **facts):
    return CardReport(uuid=uuid, model="Tesla T4", bus="0000:00:04.0", brand=2, **facts)


def pod(name="train-0", *, namespace="ml", cards=("GPU-a",), **facts):
    devices = tuple(DeviceReport(card=uuid) for uuid in cards)
    main = ContainerReport(name="main", devices=devices)
    return PodReport(namespace=namespace, name=name, containers=(main,), **facts)


def node(name="n1", *, cards=None, pods=()):
    return NodeReport(node=name, cards=(card(),) if cards is None else cards, pods=tuple(pods))
