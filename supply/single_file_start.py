"""The start of a single-file plugin; the builder adds the call of `start` with its facts."""

import os
import shutil
import sys
import tempfile
import zipfile
from importlib import import_module
from pathlib import Path


def unpack(archive: str, target: Path) -> Path:
    """The folder with the modules of the file, unpacked there once."""
    if target.is_dir():
        return target / "site"
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="unpacking-", dir=target.parent))
    try:
        with zipfile.ZipFile(archive) as packed:
            names = [name for name in packed.namelist() if name.startswith("site/")]
            packed.extractall(scratch, names)
        scratch.rename(target)
    except OSError:
        # Another start may have been faster.
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target / "site"


def start(module: str, function: str, python: tuple[int, int], digest: str) -> None:
    """Run the plugin's function out of the unpacked modules."""
    if sys.version_info[:2] != python:
        sys.exit(f"this file is for Python {python[0]}.{python[1]}; run it with that version")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    archive = sys.path[0]
    sys.path[0] = str(unpack(archive, Path(home) / "slicewise" / "plugins" / digest))
    sys.argv[0] = Path(archive).name
    getattr(import_module(module), function)()
