"""Reports of small nodes."""

from slicewise.reports import ContainerReport, DeviceReport, GpuReport, NodeReport, PodReport


def gpu(uuid="GPU-a", **facts):
    return GpuReport(uuid=uuid, model="Tesla T4", bus="0000:00:04.0", brand=2, **facts)


def pod(name="train-0", *, namespace="ml", gpus=("GPU-a",), **facts):
    devices = tuple(DeviceReport(gpu=uuid) for uuid in gpus)
    main = ContainerReport(name="main", devices=devices)
    return PodReport(namespace=namespace, name=name, containers=(main,), **facts)


def node(name="n1", *, gpus=None, pods=(), **facts):
    gpus = (gpu(),) if gpus is None else gpus
    return NodeReport(node=name, gpus=gpus, pods=tuple(pods), **facts)
