"""Where the Kubernetes binaries are: KUBEBUILDER_ASSETS first, then the cache `make kube` fills.

A cache folder is named by what went into it, so a changed version never meets an old binary.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from slicewise_testbed import versions
from slicewise_testbed.errors import TestbedError

PROJECT = Path(__file__).resolve().parents[2]
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")
NODE = ("kubelet", *CONTAINERD)
STRIPPED = "-s -w"


@dataclass(frozen=True, slots=True)
class GoModule:
    """One go.mod whose tool lines are built together, and the flags they need."""

    folder: str
    provides: tuple[str, ...]
    ldflags: str = STRIPPED
    tags: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()


_KUBERNETES_FLAGS = f"{STRIPPED} {versions.ldflags(versions.DEFAULT)}"
MODULES = (
    GoModule(
        "kube",
        (*CONTROL_PLANE, "kubelet"),
        ldflags=_KUBERNETES_FLAGS,
        # Go names a binary after its folder, and the folder of etcd is called server.
        renames=(("server", "etcd"),),
    ),
    GoModule(
        "containerd",
        CONTAINERD,
        tags=("no_btrfs", "no_devmapper", "no_zfs"),
    ),
    GoModule("helm", ("helm",)),
    GoModule("proxy", ("kube-proxy",), ldflags=_KUBERNETES_FLAGS),
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """The folders searched for a binary, first match wins."""

    folders: tuple[Path, ...]

    def path(self, name: str) -> str:
        """The full path of one binary."""
        for folder in self.folders:
            if os.access(folder / name, os.X_OK):
                return str(folder / name)
        looked = ", ".join(map(str, self.folders))
        raise TestbedError(f"{name} is not in {looked}; run `make kube`")

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Which of these binaries are in none of the folders."""
        return tuple(n for n in names if not any(os.access(f / n, os.X_OK) for f in self.folders))


def find_binaries() -> Binaries:
    """The binaries of this machine, whether or not they are complete."""
    version = versions.chosen_version()
    # Whoever names a folder of binaries has the default in it, or what counts as that.
    assets = os.environ.get("KUBEBUILDER_ASSETS") if version == versions.DEFAULT else None
    folders = (Path(assets),) if assets else ()
    return Binaries((*folders, cache_folder(version)))


def cache_folder(version: str | None = None) -> Path:
    """Where the binaries of these module versions and flags are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "slicewise" / "kube" / cache_key(version or versions.chosen_version())


def cache_key(version: str) -> str:
    """A name that changes whenever a version, a checksum or a build flag does."""
    digest = hashlib.sha256()
    for part in _ingredients(version):
        digest.update(len(part).to_bytes(8, "big") + part)
    return f"{version}-{digest.hexdigest()[:12]}"


def _ingredients(version: str) -> Iterator[bytes]:
    if version != versions.DEFAULT:
        yield (versions.FOLDER / f"{version}.sum").read_bytes()
        yield versions.ldflags(version).encode()
        yield repr(versions.PROGRAMS).encode()
        return
    for module in MODULES:
        yield repr(module).encode()
        for name in ("go.mod", "go.sum"):
            yield (PROJECT / module.folder / name).read_bytes()
