"""What an agent says of its node: the GPUs there are, and what each pod holds of them and uses.

A report is a whole state as a value; what changed between two of them is worked out elsewhere.
"""

import msgspec

PodKey = str
"""A pod as `namespace/name`."""


class MeasuredUse(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What is really used, of a GPU or by a container on it."""

    memory_mib: int = 0
    cores: int = 0
    """Percent of the GPU's compute."""


class GpuReport(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    uuid: str
    model: str
    """The driver's name for it, as it is written there."""
    bus: str = ""
    """PCI bus id."""
    brand: int = 0
    """NVML's number of the brand."""
    index: int = 0
    memory_mib: int = 0
    healthy: bool = True
    why: str = ""
    """Why it is unhealthy."""
    use: MeasuredUse | None = None
    """None when the GPU could not be asked."""
    temperature: int | None = None
    power_milliwatts: int | None = None
    minor: int = 0
    """The number of its device file."""
    allocated_cores: int = 0
    """Percent of compute that pods hold."""
    allocated_memory_mib: int = 0
    """Memory that pods hold."""
    processes: int | None = None
    """How many processes the driver sees on it; None when it could not be asked."""


class DeviceReport(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One device of a container: a GPU, or a part of one."""

    gpu: str
    """UUID of the GPU."""
    id: str = ""
    """The device plugin's id where it is not the UUID: a replica, a MIG instance, a share."""
    cores: int | None = None
    """Percent of compute allocated; None for the whole GPU."""
    memory_mib: int | None = None
    """Memory allocated; None for the whole GPU."""
    use: MeasuredUse | None = None
    """None when it is not known."""
    pids: tuple[int, ...] = ()
    """Processes of the container on the GPU."""


class ContainerReport(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One container; without devices it holds only those of other plugins."""

    name: str
    devices: tuple[DeviceReport, ...] = ()
    id: str = ""
    """The runtime's id of it."""


class PodReport(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One pod that holds devices."""

    namespace: str
    name: str
    uid: str = ""
    """Empty where the kubelet does not say it."""
    containers: tuple[ContainerReport, ...] = ()

    @property
    def key(self) -> PodKey:
        return f"{self.namespace}/{self.name}"


class ProcessReport(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A process on a GPU that belongs to no container holding that GPU."""

    gpu: str
    """UUID of the GPU."""
    pid: int
    memory_mib: int = 0
    command: str = ""
    origin: str = ""
    """Where it runs: `host`, `pod` (unknown here), `unseen`, or `trespass` for a known pod's."""
    pod: str = ""
    """A trespasser's `namespace/name`, or the UID of an unknown pod."""
    container: str = ""


class NodeReport(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag="report"
):
    """Everything an agent knows of its node at one moment."""

    node: str
    gpus: tuple[GpuReport, ...] = ()
    pods: tuple[PodReport, ...] = ()
    driver: str = ""
    """Version of the driver."""
    why: str = ""
    """Why GPUs are missing, where the driver cannot be asked."""
    processes: tuple[ProcessReport, ...] = ()
    """Processes that belong to no container holding their GPU."""
    sampled_at: float | None = None
    """When use was measured, in seconds since the epoch; None before the first time."""

    @property
    def busy(self) -> frozenset[str]:
        """UUIDs of the GPUs that any container holds, whole or in part."""
        return frozenset(
            device.gpu
            for pod in self.pods
            for container in pod.containers
            for device in container.devices
        )


_BRANDS = (
    "BRAND_UNKNOWN", "BRAND_QUADRO", "BRAND_TESLA", "BRAND_NVS", "BRAND_GRID", "BRAND_GEFORCE",
    "BRAND_TITAN", "BRAND_NVIDIA_VAPPS", "BRAND_NVIDIA_VPC", "BRAND_NVIDIA_VCS",
    "BRAND_NVIDIA_VWS", "BRAND_NVIDIA_VGAMING", "BRAND_QUADRO_RTX", "BRAND_NVIDIA_RTX",
    "BRAND_NVIDIA", "BRAND_GEFORCE_RTX", "BRAND_TITAN_RTX", "BRAND_COUNT",
)  # fmt: skip


def name_brand(number: int) -> str:
    """The text of NVML's brand number; numbers that newer drivers add are unknown brands."""
    return _BRANDS[number] if 0 <= number < len(_BRANDS) else _BRANDS[0]


def number_brand(text: str) -> int:
    return _BRANDS.index(text) if text in _BRANDS else 0
