"""What gpu-manager's resources are made of, and what their containers receive."""

from typing import Final

from slicewise.dialects.shared import injection
from slicewise.dialects.shared.dialect import AgentPart
from slicewise.dialects.shared.indexes import used_gpu, write_numbers
from slicewise.dialects.shared.injection import (
    ContainerGpus,
    DeviceNode,
    HostMount,
    Injection,
    VcudaLimit,
)
from slicewise.dialects.shared.limits import find_edition, read_amount
from slicewise.dialects.shared.offers import OfferedEdition, OfferedResource, percents, units
from slicewise.dialects.tkestack import pods
from slicewise.model import BYTES_PER_MIB, FULL, HOOKED, MiB, Percent, PodRecord

# The pod's own value wins over this one, which it would not if it came with the GPUs.
_LIBRARIES: Final = {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"}


def offer(name: str, names: pods.TkestackNames, prefix: str) -> OfferedEdition:
    # gpu-manager's memory resource brings nothing: a container has GPUs by its cores alone.
    return OfferedEdition(
        name,
        (
            OfferedResource(
                names.core, f"{prefix}vcore.sock", percents, env=_LIBRARIES, annotation_unit=1
            ),
            OfferedResource(
                names.memory,
                f"{prefix}vmemory.sock",
                units(names.memory_unit),
                carries=False,
                annotation_unit=names.memory_unit * BYTES_PER_MIB,
            ),
        ),
    )


def inject(held: ContainerGpus) -> Injection:
    """The GPUs, the folder of the limiter and gpu-manager's copy of the driver."""
    names = find_edition(held.pod, pods.EDITIONS)
    cores = read_amount(held.container, names.core)
    memory = MiB(read_amount(held.container, names.memory) * names.memory_unit)
    whole = cores >= FULL
    ceiling = None if whole else pods.read_ceiling(held.pod)
    volume = "origin" if whole else "nvidia"
    env = {injection.VISIBLE: held.uuids}
    if held.compat32:
        env["LD_LIBRARY_PATH"] = "/usr/local/nvidia/lib"
    return Injection(
        env=env,
        devices=(*injection.gpu_nodes(held, tools=False), *_extra_nodes(held)),
        mounts=(
            HostMount(f"{held.places.drivers}/{volume}", "/usr/local/nvidia", optional=True),
            HostMount(f"{held.places.pods}/{held.pod.uid}", "/etc/vcuda"),
        ),
        annotations={
            names.core: str(cores),
            names.memory: str(memory * BYTES_PER_MIB),
            names.key("vcuda-device"): ",".join(f"/dev/nvidia{gpu.minor}" for gpu in held.gpus),
        },
        limit=VcudaLimit(memory, Percent(min(cores, FULL)), ceiling, whole),
    )


def _extra_nodes(held: ContainerGpus) -> tuple[DeviceNode, ...]:
    return tuple(DeviceNode(path.removeprefix("/dev/"), path) for path in held.places.devices)


def flag(held: ContainerGpus, _: int) -> PodRecord:
    """The assigned flag, with minor numbers where the extender wrote indexes."""
    names = find_edition(held.pod, pods.EDITIONS)
    annotations = {names.key("gpu-assigned"): "true"}
    for at, container in enumerate(held.pod.main_containers):
        if slices := held.allocation.slices_of(container.name):
            annotations[pods.index_key(names, at)] = write_numbers(
                used_gpu(held.node, piece).minor for piece in slices
            )
    labels = {} if names.bind_phase is None else {names.bind_phase: "success"}
    return PodRecord(annotations, labels)


AGENT: Final = AgentPart(
    editions=(
        offer("tkestack", pods.FORK, ""),
        offer("tkestack-upstream", pods.UPSTREAM, "tencent-"),
    ),
    inject=inject,
    flag=flag,
    isolation=HOOKED,
)
