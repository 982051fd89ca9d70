"""Atomic files, links and folders: readers see the old content or the new, never a part of it."""

import contextlib
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Final

from slicewise.model import SlicewiseError

# Kubernetes allows no more in a UID or the name of a container.
_SAFE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
SCRATCH: Final = ".scratch-"


class FileError(SlicewiseError):
    """A file that could not be written, or a name that no file may have."""


def check_name(what: str, name: str) -> str:
    """The name, if it is safe as the name of one file or folder."""
    if _SAFE.fullmatch(name) is None or ".." in name:
        raise FileError(f"{what} {name!r}: expected letters, digits, dots and dashes alone")
    return name


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace the file atomically; after a failure the old content is still there."""
    scratch = path.with_name(f"{SCRATCH}{path.name}-{secrets.token_hex(4)}")
    try:
        with open(scratch, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(scratch, mode)
        os.replace(scratch, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise FileError(
            f"cannot write {path}: {error.strerror}; free space or repair the node's disk"
        ) from error


def make_folder(path: Path, mode: int = 0o755) -> None:
    """Make the folder and its parents, unless they exist."""
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make folder {path}: {error.strerror}") from error


def make_link(path: Path, target: str) -> None:
    """Make the symbolic link atomically, replacing what is at the path."""
    scratch = path.with_name(f"{SCRATCH}{path.name}-{secrets.token_hex(4)}")
    try:
        if path.is_symlink() and os.readlink(path) == target:
            return
        os.symlink(target, scratch)
        os.replace(scratch, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise FileError(f"cannot link {path} to {target}: {error.strerror}") from error


def remove(path: Path) -> bool:
    """Remove what is at the path, a link and not its target; whether there was anything."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise FileError(f"cannot remove {path}: {error.strerror}") from error
    return True
