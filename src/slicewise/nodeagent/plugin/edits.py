"""What a container receives, as CDI edits or as an answer of the device plugin API.

Device nodes that the host does not have are left out, unless a GPU would be missing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from slicewise.dialects.shared.injection import ContainerGpus, DeviceNode, HostMount, Injection
from slicewise.kubelet.v1beta1 import ContainerAllocateResponse, DeviceSpec, Mount
from slicewise.model import Gpu
from slicewise.nodeagent.files import FileError, make_link
from slicewise.nodeagent.limits.vcuda import VcudaFolders, write_config
from slicewise.nodeagent.plugin.cdi import CdiEdits
from slicewise.nodeagent.plugin.vendor_cdi import VendorSpecs

_PERMISSIONS: Final = "rwm"
_DEV: Final = Path("/dev")
_FLAGS: Final = ("ro", "nosuid", "nodev", "rbind")
_WRITABLE_FLAGS: Final = ("rw", "nosuid", "nodev", "bind")


@dataclass(frozen=True, slots=True)
class HostDevices:
    """Where the host has what containers receive."""

    dev: Path = _DEV
    """The folder of device nodes."""
    require_gpus: bool = True
    """Whether a GPU without its device node is an error."""
    driver: str = ""
    """The version of the driver."""


class EditsBuilder:
    """Builds CDI edits and Allocate responses, and prepares the host for them."""

    def __init__(self, host: HostDevices, vendor: VendorSpecs, folders: VcudaFolders) -> None:
        self._host = host
        self._vendor = vendor
        self._folders = folders

    def prepare(self, container_gpus: ContainerGpus, injection: Injection) -> None:
        """Links and folders that the container's view of the host relies on."""
        for link in injection.links:
            make_link(self._host.dev / link.name, str(self._host.dev / link.target))
        if injection.limit is not None:
            uid, container = container_gpus.pod.uid, container_gpus.container.name
            config = write_config(uid, container, injection.limit, self._host.driver)
            self._folders.write_limits(uid, container, config)

    def edits(self, container_gpus: ContainerGpus, injection: Injection) -> CdiEdits:
        """The changes to the container, with NVIDIA's own for its GPUs where there are any."""
        return self.edits_of(container_gpus.gpus, injection)

    def edits_of(self, gpus: Iterable[Gpu], injection: Injection) -> CdiEdits:
        """The same for whoever receives these GPUs."""
        vendor = self._vendor.edits(gpus) or CdiEdits()
        nodes = [self._write_node(each) for each in self._present(injection.devices, vendor)]
        mounts = [_write_mount(each) for each in _find_mounts(injection)]
        return CdiEdits(
            env=_join_env(vendor.env, injection.env),
            device_nodes=_join("path", vendor.device_nodes, nodes),
            mounts=_join("containerPath", vendor.mounts, mounts),
            hooks=vendor.hooks,
            gids=vendor.gids,
            version=vendor.version,
        )

    def answer(self, injection: Injection) -> ContainerAllocateResponse:
        """The same for a runtime without CDI, which NVIDIA's runtime completes."""
        mounts = _find_mounts(injection)
        return ContainerAllocateResponse(
            envs=dict(injection.env),
            mounts=tuple(
                Mount(each.path, each.source, read_only=not each.writable) for each in mounts
            ),
            devices=tuple(
                DeviceSpec(each.path, str(self._host.dev / each.name), _PERMISSIONS)
                for each in self._present(injection.devices, CdiEdits())
            ),
            annotations=dict(injection.annotations),
        )

    def _present(self, devices: tuple[DeviceNode, ...], vendor: CdiEdits) -> list[DeviceNode]:
        given = {str(node.get("path")) for node in vendor.device_nodes}
        present = []
        for device in devices:
            if (self._host.dev / device.name).exists():
                present.append(device)
            elif device.gpu and self._host.require_gpus and device.path not in given:
                raise FileError(
                    f"{self._host.dev / device.name}: no such device node; "
                    "load the driver or run nvidia-modprobe"
                )
        return present

    def _write_node(self, device: DeviceNode) -> dict[str, Any]:
        source = self._host.dev / device.name
        node = {"path": device.path, "permissions": _PERMISSIONS}
        return node if str(source) == device.path else {**node, "hostPath": str(source)}


def _find_mounts(injection: Injection) -> list[HostMount]:
    return [each for each in injection.mounts if not each.optional or Path(each.source).is_dir()]


def _write_mount(mount: HostMount) -> dict[str, Any]:
    flags = _WRITABLE_FLAGS if mount.writable else _FLAGS
    return {"hostPath": mount.source, "containerPath": mount.path, "options": list(flags)}


def _join_env(vendor: tuple[str, ...], own: Mapping[str, str]) -> tuple[str, ...]:
    env = dict(entry.partition("=")[::2] for entry in vendor)
    return tuple(f"{key}={value}" for key, value in {**env, **own}.items())


def _join(key: str, vendor: Any, own: Any) -> tuple[Mapping[str, Any], ...]:
    given = {each.get(key) for each in vendor}
    return (*vendor, *(each for each in own if each.get(key) not in given))
