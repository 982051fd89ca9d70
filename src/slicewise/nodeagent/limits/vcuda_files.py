"""gpu-manager's folder of a pod: what its limiter library reads in a container.

The container sees the folder read-only as /etc/vcuda. Under it every container has a folder of
its own name with its limits, and a link from its id once the runtime has assigned one.
"""

import struct
from pathlib import Path
from typing import Final

from slicewise.dialects.shared.injection import VcudaLimit
from slicewise.model import BYTES_PER_MIB
from slicewise.nodeagent.files import check_name, make_folder, make_link, remove, write_whole

CONFIG: Final = "vcuda.config"
# pod UID, soft ceiling, reserved, container, bus, memory, share, hard, driver (2), enabled, gap
_CONFIG: Final = struct.Struct("<48si4044x4096s16xQiiiii4x")


def write_config(uid: str, container: str, limit: VcudaLimit, driver: str) -> bytes:
    """The limits of one container as the library reads them."""
    major, minor = read_driver(driver)
    return _CONFIG.pack(
        uid.encode()[:47],
        limit.ceiling or 0,
        container.encode()[:4095],
        limit.memory * BYTES_PER_MIB,
        limit.cores,
        int(limit.ceiling is None),
        major,
        minor,
        int(not limit.whole),
    )


def read_driver(version: str) -> tuple[int, int]:
    """Major and minor number of a driver; zero for what is no number."""
    parts = [int(part) if part.isdecimal() else 0 for part in version.split(".")]
    return (*parts, 0, 0)[0], (*parts, 0, 0)[1]


class VcudaFolders:
    def __init__(self, root: Path) -> None:
        self.root = root

    def write_limits(self, uid: str, container: str, config: bytes) -> None:
        folder = self._folder(uid) / check_name("container", container)
        make_folder(folder)
        path = folder / CONFIG
        if not path.is_file() or path.read_bytes() != config:
            write_whole(path, config)

    def name_container(self, uid: str, container: str, identity: str) -> None:
        """Link the container's folder by the container's id."""
        folder = self._folder(uid)
        if (folder / check_name("container", container)).is_dir():
            make_link(folder / check_name("container id", identity), container)

    def alias(self, name: str, uid: str) -> None:
        """Link the pod's folder by its units, which are known before the pod is."""
        make_folder(self.root / "by-units")
        make_link(self.root / "by-units" / name, f"../{check_name('pod UID', uid)}")

    def pods(self) -> tuple[str, ...]:
        if not self.root.is_dir():
            return ()
        return tuple(
            sorted(
                path.name
                for path in self.root.iterdir()
                if path.is_dir() and not path.is_symlink() and path.name != "by-units"
            )
        )

    def aliases(self) -> tuple[str, ...]:
        folder = self.root / "by-units"
        return tuple(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else ()

    def remove(self, uid: str) -> None:
        remove(self._folder(uid))

    def remove_alias(self, name: str) -> None:
        remove(self.root / "by-units" / check_name("alias", name))

    def _folder(self, uid: str) -> Path:
        return self.root / check_name("pod UID", uid)
