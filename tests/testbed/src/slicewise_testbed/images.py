"""Container images made on the spot, since a testbed has no registry.

An image is a docker-archive: one layer, a configuration and a manifest in a tar file.
"""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BUSYBOX = "docker.io/library/busybox:local"
PAUSE = "docker.io/library/pause:local"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its name, the tar file of its only layer, and what it runs."""

    reference: str
    layer: bytes
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def busybox_layer(busybox: Path) -> bytes:
    """A file system of one static busybox, a link for each of its commands, and little else."""
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as layer:
        for folder in ("bin", "etc", "tmp", "root"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            layer.addfile(entry)
        add_file(layer, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", 0o644)
        add_file(layer, "bin/busybox", busybox.read_bytes(), 0o755)
        for command in sorted(set(listed.stdout.split()) - {"busybox"}):
            entry = tarfile.TarInfo(f"bin/{command}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            layer.addfile(entry)
    return content.getvalue()


def standard_images(busybox: Path) -> tuple[Image, ...]:
    """busybox for pods, and the pause image every sandbox starts from."""
    layer = busybox_layer(busybox)
    path = {"PATH": "/bin"}
    return (
        Image(BUSYBOX, layer, ("sh",), path),
        Image(PAUSE, layer, ("/bin/sleep", "2147483647"), path),
    )


def write_images(target: Path, images: Sequence[Image]) -> None:
    """A docker-archive of these images, which `ctr images import` reads."""
    manifest = []
    with tarfile.open(target, "w") as archive:
        for layer in {image.layer for image in images}:
            add_file(archive, f"{_digest(layer)}.tar", layer, 0o644)
        for image in images:
            described = json.dumps(_configuration(image)).encode()
            name = f"{_digest(described)}.json"
            add_file(archive, name, described, 0o644)
            layers = [f"{_digest(image.layer)}.tar"]
            manifest.append({"Config": name, "RepoTags": [image.reference], "Layers": layers})
        add_file(archive, "manifest.json", json.dumps(manifest).encode(), 0o644)


def _configuration(image: Image) -> dict[str, object]:
    machine = platform.machine()
    environment = [f"{name}={value}" for name, value in image.environment.items()]
    return {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Cmd": list(image.command), "Env": environment},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(image.layer)}"]},
    }


def add_file(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    """One file of the archive, with fixed time and owner."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
