"""Builds the kubectl plugins as single files, and the krew manifest that installs them.

`python supply/single_files.py [amd64] [arm64]`; without names, both. A file is an executable zip
of the product and its wheels for this Python's version. Compiled modules cannot be imported out
of a zip, so its first start unpacks it into the user's cache, under a name that is its content.
"""

import gzip
import hashlib
import io
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from image.oci import add_bytes
from image.recipe import ARCHITECTURES, SITE, Architecture
from image.rootfs import is_left_out, list_files
from image.wheels import Wheel, build_product, fetch_wheels, unpack_wheel

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "kubectl"
# Where releases are downloaded from; krew's manifest must name a place.
_RELEASES = "SLICEWISE_RELEASES"
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Plugin:
    """One kubectl plugin: its file, the function it runs, and what krew says of it."""

    file: str
    module: str
    function: str
    about: str

    @property
    def name(self) -> str:
        """Its name in krew."""
        return self.file.removeprefix("kubectl-")


PLUGINS = (
    Plugin(
        "kubectl-slicewise",
        "slicewise.cli.main",
        "kubectl_plugin",
        "See who holds which GPU, and why a pod waits",
    ),
    Plugin(
        "kubectl-inspect-gpushare",
        "slicewise.cli.inspect_gpushare",
        "main",
        "Show the GPU memory that pods hold",
    ),
)


def pack_plugin(plugin: Plugin, site: Path, python: tuple[int, int]) -> bytes:
    """The single file: a line for the kernel, then a zip of the start and the site folder."""
    members = {
        f"site/{path.relative_to(site).as_posix()}": path.read_bytes()
        for path in list_files(site)
        if path.is_file() and not is_left_out(f"{SITE}/{path.relative_to(site).as_posix()}")
    }
    digest = hashlib.sha256()
    for name, content in members.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    start = (ROOT / "supply" / "single_file_start.py").read_text()
    facts = (plugin.module, plugin.function, python, digest.hexdigest()[:16])
    main = f"{start}\n\nstart{facts!r}\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (("__main__.py", main.encode()), *members.items()):
            archive.writestr(zipfile.ZipInfo(name, _FIXED_TIME), content, zipfile.ZIP_DEFLATED)
    return b"#!/usr/bin/env python3\n" + packed.getvalue()


def pack_archive(plugin: Plugin, content: bytes) -> bytes:
    """The archive that krew unpacks: the file and the licence."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        add_bytes(archive, "LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644)
        add_bytes(archive, plugin.file, content, 0o755)
    # The zip inside is compressed already.
    return gzip.compress(packed.getvalue(), 1, mtime=0)


def write_manifest(plugin: Plugin, version: str, archives: Mapping[str, str]) -> dict[str, Any]:
    """krew's manifest; `archives` are the SHA-256 of the archives by architecture."""
    place = os.environ.get(_RELEASES, "https://example.org/slicewise").rstrip("/")
    platforms = [
        {
            "selector": {"matchLabels": {"os": "linux", "arch": architecture}},
            "uri": f"{place}/v{version}/{plugin.name}-linux-{architecture}.tar.gz",
            "sha256": sha256,
            "bin": plugin.file,
        }
        for architecture, sha256 in archives.items()
    ]
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": plugin.name},
        "spec": {
            "version": f"v{version}",
            "shortDescription": plugin.about,
            "homepage": place,
            "platforms": platforms,
        },
    }


def build(architecture: Architecture, product: Wheel) -> dict[str, str]:
    """The SHA-256 of each plugin's archive, by its name; files and archives are in out/kubectl."""
    python = sys.version_info[:2]
    wheels = (*fetch_wheels(architecture, OUT / "cache", python), product)
    found = {}
    with tempfile.TemporaryDirectory(dir=OUT) as scratch:
        for wheel in wheels:
            unpack_wheel(wheel.file, Path(scratch))
        for plugin in PLUGINS:
            content = pack_plugin(plugin, Path(scratch), python)
            folder = OUT / architecture.name
            folder.mkdir(exist_ok=True)
            (folder / plugin.file).write_bytes(content)
            (folder / plugin.file).chmod(0o755)
            archive = pack_archive(plugin, content)
            (OUT / f"{plugin.name}-linux-{architecture.name}.tar.gz").write_bytes(archive)
            found[plugin.name] = hashlib.sha256(archive).hexdigest()
            print(f"{folder / plugin.file}  {len(content) / (1 << 20):.1f} MiB", flush=True)
    return found


def main() -> None:
    """Build what the command line names."""
    known = {each.name: each for each in ARCHITECTURES}
    names = sys.argv[1:] or list(known)
    OUT.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(OUT / "cache" / "product", ignore_errors=True)
    product = build_product(ROOT, OUT / "cache")
    built = {name: build(known[name], product) for name in names}
    for plugin in PLUGINS:
        archives = {name: found[plugin.name] for name, found in built.items()}
        manifest = write_manifest(plugin, product.version, archives)
        (OUT / f"{plugin.name}.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))


if __name__ == "__main__":
    main()
