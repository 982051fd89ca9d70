"""The container runtimes a real node can have: containerd 2 with CDI, or Debian's without it.

Debian's is taken out of its package without being installed, so the machine keeps its own.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from slicewise_testbed.binaries import CONTAINERD, Binaries, cache_folder
from slicewise_testbed.errors import TestbedError
from slicewise_testbed.images import PAUSE

_PACKAGE = "containerd"


@dataclass(frozen=True, slots=True)
class Runtime:
    """One containerd: its configuration, and how its ctr imports images."""

    name: str
    template: str
    packaged: bool = False
    import_flags: tuple[str, ...] = ()

    def binaries(self, built: Binaries) -> Binaries:
        """Where its programs are, given the folders of those that `make kube` builds."""
        return Binaries((package_folder(),)) if self.packaged else built

    def configuration(self, network: Path, plugins: Path, runc: Path) -> str:
        """The configuration file, for these CNI folders and this runc."""
        return self.template.format(network=network, plugins=plugins, runc=runc, pause=PAUSE)


def package_folder() -> Path:
    """Where the programs of the distribution's package are kept."""
    return cache_folder().parent / "containerd-package"


def missing_packaged() -> tuple[str, ...]:
    """The programs of the distribution's package that are not in the cache."""
    return Binaries((package_folder(),)).missing(CONTAINERD)


def ensure_packaged_containerd(say: Callable[[str], None]) -> None:
    """The programs of the distribution's package are in the cache."""
    if not missing_packaged():
        return
    folder = package_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="unpacking-", dir=folder.parent) as scratch:
        say(f"fetching the package {_PACKAGE}")
        _unpack(Path(scratch))
        programs = Path(scratch) / "usr" / "bin"
        if missing := Binaries((programs,)).missing(CONTAINERD):
            raise TestbedError(f"the package {_PACKAGE} has no {missing[0]}")
        shutil.rmtree(folder, ignore_errors=True)
        # Another run may have been as quick; what it brought is the same.
        with contextlib.suppress(FileExistsError):
            programs.rename(folder)


def _unpack(folder: Path) -> None:
    download = ["apt-get", "download", "-qq", _PACKAGE]
    # Package lists may be absent or stale on a fresh machine; a first failure refreshes them.
    for command in (download, ["apt-get", "update", "-qq"], download):
        if _run(command, folder) and command is download:
            break
    for archive in folder.glob("*.deb"):
        if _run(["dpkg-deb", "--extract", str(archive), str(folder)], folder):
            return
    raise TestbedError(
        f"cannot fetch the package {_PACKAGE}: real nodes without CDI need apt-get and its lists"
    )


def _run(command: list[str], folder: Path) -> bool:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, env=os.environ, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


_FOLDERS = """\
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "/run/containerd/containerd.sock"
"""
# Lowering the score needs CAP_SYS_RESOURCE, without which no sandbox would start.
_RESTRICT = "restrict_oom_score_adj = true"

WITH_CDI = Runtime(
    "containerd-2",
    f"""\
version = 3
{_FOLDERS}
[plugins."io.containerd.cri.v1.images"]
snapshotter = "native"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{{pause}}"

[plugins."io.containerd.cri.v1.runtime"]
{_RESTRICT}
enable_cdi = true
cdi_spec_dirs = ["/var/run/cdi"]

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{{plugins}}"]
conf_dir = "{{network}}"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{{runc}}"
SystemdCgroup = false
""",
    import_flags=("--local",),
)

# A native snapshot copies the whole image for every container; large ones take half a minute.
WITH_OVERLAY = replace(
    WITH_CDI, name="containerd-2-overlay", template=WITH_CDI.template.replace("native", "overlayfs")
)


def choose_for_large_images(folder: Path) -> Runtime:
    """Containerd 2 with overlays where this folder's file system takes them."""
    with tempfile.TemporaryDirectory(prefix="overlay-", dir=folder) as scratch:
        parts = [Path(scratch) / name for name in ("lower", "upper", "work", "merged")]
        for part in parts:
            part.mkdir()
        lower, upper, work, merged = parts
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        mount = ["unshare", "--mount", "mount", "-t", "overlay", "-o", options]
        done = _run([*mount, "overlay", str(merged)], folder)
    return WITH_OVERLAY if done else WITH_CDI


WITHOUT_CDI = Runtime(
    "containerd-1",
    # Version 1.6 knows no CDI and ignores the line that turns it off for later ones.
    f"""\
version = 2
{_FOLDERS}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{{pause}}"
{_RESTRICT}
enable_cdi = false

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{{plugins}}"
conf_dir = "{{network}}"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{{runc}}"
SystemdCgroup = false
""",
    packaged=True,
)
