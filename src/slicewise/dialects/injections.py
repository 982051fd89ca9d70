"""What each system's containers receive, and the flag its tools look for once they have it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from slicewise.dialects import elastic, gpushare, tkestack
from slicewise.dialects.offers import hash_ids
from slicewise.dialects.shared.indexes import used_gpu, write_numbers
from slicewise.dialects.shared.injection import (
    CONTROLS,
    TOOLS,
    VISIBLE,
    ContainerGpus,
    DeviceNode,
    HostMount,
    Injection,
    Link,
    VcudaLimit,
    gpu_nodes,
    no_marks,
)
from slicewise.dialects.shared.limits import find_edition, read_amount
from slicewise.dialects.sharing import measure_peak
from slicewise.model import FULL, MiB, Percent, PodRecord

_CGPU_LABEL: Final = "cgpu.disable.isolation"
_BYTES_PER_MIB: Final = 1 << 20


Injector = Callable[[ContainerGpus], Injection]
Flagger = Callable[[ContainerGpus, int], PodRecord]
"""From a grant and nanoseconds since 1970 to what is written on the pod."""


@dataclass(frozen=True, slots=True)
class Giver:
    """How one system gives."""

    inject: Injector
    flag: Flagger = no_marks


def inject_own(grant: ContainerGpus) -> Injection:
    """The GPUs, and how much of each the container was promised."""
    slices = grant.slices
    return Injection(
        env={
            VISIBLE: grant.uuids,
            "SLICEWISE_GPU_CORES": ",".join(str(piece.cores) for piece in slices),
            "SLICEWISE_GPU_MEMORY_MIB": ",".join(str(piece.memory) for piece in slices),
        },
        devices=gpu_nodes(grant),
    )


def inject_nvidia(grant: ContainerGpus) -> Injection:
    """Whole GPUs, as NVIDIA's own plugin gives them."""
    return Injection(env={VISIBLE: grant.uuids}, devices=gpu_nodes(grant))


def inject_tkestack(grant: ContainerGpus) -> Injection:
    """The GPUs, the folder of the limiter and gpu-manager's copy of the driver."""
    names = find_edition(grant.pod, tkestack.EDITIONS)
    limit = _read_limit(grant, names)
    volume = "origin" if limit.whole else "nvidia"
    memory = read_amount(grant.container, names.memory) * names.memory_unit * _BYTES_PER_MIB
    env = {VISIBLE: grant.uuids}
    if grant.compat32:
        env["LD_LIBRARY_PATH"] = "/usr/local/nvidia/lib"
    return Injection(
        env=env,
        devices=gpu_nodes(grant, tools=False),
        mounts=(
            HostMount(f"{grant.places.drivers}/{volume}", "/usr/local/nvidia", optional=True),
            HostMount(f"{grant.places.pods}/{grant.pod.uid}", "/etc/vcuda"),
        ),
        annotations={
            names.core: str(read_amount(grant.container, names.core)),
            names.memory: str(memory),
            names.key("vcuda-device"): ",".join(f"/dev/nvidia{gpu.minor}" for gpu in grant.gpus),
        },
        limit=limit,
    )


def flag_tkestack(grant: ContainerGpus, now_ns: int) -> PodRecord:
    """The assigned flag, with minor numbers where the extender wrote indexes."""
    names = find_edition(grant.pod, tkestack.EDITIONS)
    annotations = {names.key("gpu-assigned"): "true"}
    for at, container in enumerate(grant.pod.main_containers):
        if slices := grant.allocation.slices_of(container.name):
            annotations[names.key(f"predicate-gpu-idx-{at}")] = write_numbers(
                used_gpu(grant.node, piece).minor for piece in slices
            )
    labels = {} if names.bind_phase is None else {names.bind_phase: "success"}
    return PodRecord(annotations, labels)


def inject_gpushare(grant: ContainerGpus) -> Injection:
    """The GPUs, and gpushare's account of the memory in its units."""
    names = _share_names(grant)
    units = -(-measure_peak(grant.request, grant.allocation) // names.memory_unit)
    env = {
        # The original's number was read as an NVML index, which need not be the minor number.
        VISIBLE: grant.uuids,
        names.index: grant.minors,
        names.pod_units: grant.pod.annotations.get(names.pod_units, str(units)),
        "ALIYUN_COM_GPU_MEM_CONTAINER": str(read_amount(grant.container, names.memory)),
        names.gpu_units: str(grant.gpus[0].memory // names.memory_unit),
    }
    if grant.labels.get(_CGPU_LABEL) == "true":
        env["CGPU_DISABLE"] = "true"
    return Injection(env=env, devices=gpu_nodes(grant))


def flag_gpushare(grant: ContainerGpus, now_ns: int) -> PodRecord:
    """The assigned flag and the time of it."""
    names = gpushare.GIB
    return PodRecord({names.assigned: "true", names.assume_time: str(now_ns)})


def inject_elastic(grant: ContainerGpus) -> Injection:
    """The GPUs, and the host links by which an installed hook of elastic-gpu finds them."""
    names = find_edition(grant.pod, elastic.EDITIONS)
    digest = hash_ids(grant.ids)
    env = {"GPU": digest, VISIBLE: "none"}
    many = names.memory is not None
    if not many:
        env["ku"] = str(len(grant.ids))
    links: list[Link] = []
    devices = list(gpu_nodes(grant))
    for at, gpu in enumerate(grant.gpus):
        tail = f"{digest}-{at}" if many else digest
        links.append(Link(f"elastic-gpu-{tail}", f"nvidia{gpu.minor}"))
        links.append(Link(f"elastic-gpuctl-{tail}", "nvidiactl"))
        # The real node, for a runtime that follows no links must find a device there.
        devices.append(DeviceNode(f"nvidia{gpu.minor}", f"/host/dev/elastic-gpu-{tail}"))
        if not many:
            devices.append(DeviceNode("nvidiactl", f"/host/dev/elastic-gpuctl-{tail}"))
            break
    if many:
        devices += [DeviceNode(name, f"/host/dev/{name}") for name in (*CONTROLS, TOOLS)]
    return Injection(env=env, devices=tuple(devices), links=tuple(links))


GIVERS: Final[Mapping[str, Giver]] = {
    "slicewise": Giver(inject_own),
    "tkestack": Giver(inject_tkestack, flag_tkestack),
    "gpushare": Giver(inject_gpushare, flag_gpushare),
    "elastic": Giver(inject_elastic),
    "gpuscheduler": Giver(inject_nvidia),
}


def _read_limit(grant: ContainerGpus, names: tkestack.TkestackNames) -> VcudaLimit:
    cores = read_amount(grant.container, names.core)
    memory = read_amount(grant.container, names.memory) * names.memory_unit
    ceiling = None if cores >= FULL else tkestack.read_ceiling(grant.pod)
    return VcudaLimit(MiB(memory), Percent(min(cores, FULL)), ceiling, cores >= FULL)


def _share_names(grant: ContainerGpus) -> gpushare.GpushareNames:
    """The unit in which the pod was counted, told by what its container was promised."""
    asked = read_amount(grant.container, gpushare.GIB.memory)
    promised = sum(piece.memory for piece in grant.slices)
    return gpushare.MIB if promised == asked else gpushare.GIB
