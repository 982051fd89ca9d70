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
    """One GPU of the node."""

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
    """Why it is not well."""
    use: MeasuredUse | None = None
    """None when the GPU could not be asked."""
    temperature: int | None = None
    power_milliwatts: int | None = None


class DeviceReport(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One device of a container: a GPU, or a part of one."""

    gpu: str
    """UUID of the GPU."""
    id: str = ""
    """The device plugin's id where it is not the UUID: a replica, a MIG instance, a share."""
    cores: int | None = None
    """Percent of compute promised; None for the whole GPU."""
    memory_mib: int | None = None
    """Memory promised; None for the whole GPU."""
    use: MeasuredUse | None = None
    """None when it is not known."""


class ContainerReport(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One container; without devices it holds only those of other plugins."""

    name: str
    devices: tuple[DeviceReport, ...] = ()


class PodReport(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One pod that holds devices."""

    namespace: str
    name: str
    uid: str = ""
    """Empty where the kubelet does not say it."""
    containers: tuple[ContainerReport, ...] = ()

    @property
    def key(self) -> PodKey:
        """The pod as `namespace/name`."""
        return f"{self.namespace}/{self.name}"


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
    """NVML's number of a brand's text."""
    return _BRANDS.index(text) if text in _BRANDS else 0
