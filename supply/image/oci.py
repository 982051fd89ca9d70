"""OCI archives: layers, a configuration and a manifest in one tar file, equal for equal input.

Names are sorted, times are fixed and everything belongs to root, so no byte depends on the run.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from image.rootfs import list_files

_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_STICKY = frozenset(("tmp",))
_EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its compressed bytes, and the digest and size of what they hold."""

    compressed: bytes
    diff_id: str
    unpacked_bytes: int


def pack_layer(root: Path) -> Layer:
    """The folder as a layer."""
    plain = io.BytesIO()
    size = 0
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in list_files(root):
            name = path.relative_to(root).as_posix()
            entry = _enter(path, name)
            content = path.read_bytes() if entry.isreg() else b""
            entry.size = len(content)
            size += len(content)
            archive.addfile(entry, io.BytesIO(content))
    data = plain.getvalue()
    # The time in gzip's own head would be that of the run.
    return Layer(gzip.compress(data, 6, mtime=0), f"sha256:{_digest(data)}", size)


def write_archive(
    target: Path,
    layers: Sequence[Layer],
    *,
    architecture: str,
    configuration: Mapping[str, Any],
    reference: str,
) -> str:
    """The digest of the image that the archive holds under this name."""
    described = {
        "architecture": architecture,
        "os": "linux",
        "created": _EPOCH,
        "config": dict(configuration),
        "rootfs": {"type": "layers", "diff_ids": [each.diff_id for each in layers]},
        "history": [{"created": _EPOCH, "created_by": "slicewise"} for _ in layers],
    }
    config = _encode(described)
    manifest = _encode(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _point(config, _CONFIG),
            "layers": [_point(each.compressed, _LAYER) for each in layers],
        }
    )
    name, _, tag = reference.rpartition(":")
    names = {
        "io.containerd.image.name": f"docker.io/library/{name}:{tag}",
        "org.opencontainers.image.ref.name": tag,
    }
    entry = {
        **_point(manifest, _MANIFEST),
        "platform": {"architecture": architecture, "os": "linux"},
        "annotations": names,
    }
    files = {"oci-layout": _encode({"imageLayoutVersion": "1.0.0"})}
    files["index.json"] = _encode({"schemaVersion": 2, "manifests": [entry]})
    blobs = (config, manifest, *(each.compressed for each in layers))
    files |= {f"blobs/sha256/{_digest(blob)}": blob for blob in blobs}
    _write_tar(target, files)
    return f"sha256:{_digest(manifest)}"


def _enter(path: Path, name: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    if path.is_symlink():
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
    elif path.is_dir():
        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name in _STICKY else 0o755
    else:
        entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
    return entry


def add_bytes(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    """One more file in the archive, with fixed time and owner."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _write_tar(target: Path, files: Mapping[str, bytes]) -> None:
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as archive:
        for name in sorted(files):
            add_bytes(archive, name, files[name], 0o644)


def _point(blob: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{_digest(blob)}", "size": len(blob)}


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
