"""Which Kubernetes the testbed runs, and the Go module that one of its versions is built from.

The default version has a go.mod and a go.sum of its own in `kube`. For every other one,
`versions/<version>.sum` pins kubernetes and the modules that are published beside it. The rest of
go.mod and go.sum comes out of kubernetes itself, whose hash is one of the pins.
"""

import json
import os
import re
import subprocess
from pathlib import Path

from slicewise_testbed.errors import TestbedError

DEFAULT = "v1.36.4"
VARIABLE = "SLICEWISE_KUBERNETES"
FOLDER = Path(__file__).resolve().parents[2] / "versions"
MODULE = "k8s.io/kubernetes"
# kubectl, etcd and containerd are those of the default version: they work with all of them.
PROGRAMS = (
    "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubelet",
)  # fmt: skip


def chosen_version() -> str:
    """The version that the environment asks for: `v1.34.10`, `v1.34.x`, `1.34`, or the default."""
    wanted = os.environ.get(VARIABLE, "").removeprefix("v").removesuffix(".x")
    if not wanted:
        return DEFAULT
    for version in known_versions():
        number = version.removeprefix("v")
        if wanted in (number, number.rpartition(".")[0]):
            return version
    known = ", ".join(known_versions())
    raise TestbedError(f"{VARIABLE}={os.environ[VARIABLE]!r}: expected one of {known}")


def known_versions() -> tuple[str, ...]:
    """Every version with pins, oldest first."""
    pinned = {path.name.removesuffix(".sum") for path in FOLDER.glob("v*.sum")}
    return tuple(sorted(pinned | {DEFAULT}, key=_numbers))


def minor(version: str) -> int:
    """The 34 of v1.34.10."""
    return _numbers(version)[1]


def ldflags(version: str) -> str:
    """What tells a built program its version."""
    where = "k8s.io/component-base/version"
    facts = {"gitVersion": version, "gitMajor": "1", "gitMinor": str(minor(version))}
    return " ".join(f"-X {where}.{name}={text}" for name, text in facts.items())


def write_module(go: str, version: str, folder: Path) -> None:
    """A go.mod and a go.sum in the folder, which build exactly what is pinned."""
    pins = (FOLDER / f"{version}.sum").read_text()
    source = _download(go, version, folder)
    if f"{MODULE} {version} {source['Sum']}\n" not in pins:
        raise TestbedError(f"{MODULE} {version} is {source['Sum']}, and not what is pinned")
    _write(version, Path(source["Dir"]), folder, pins)


def pin(go: str, version: str, folder: Path) -> str:
    """The pins of a version, as Go's checksum database and its proxy tell them now."""
    origin = Path(_download(go, version, folder)["Dir"])
    _write(version, origin, folder, "")
    listing = [go, "list", "-deps", *packages()]
    _run(listing, folder, "-mod=mod")
    had = set((origin / "go.sum").read_text().splitlines())
    lines = (folder / "go.sum").read_text().splitlines()
    return "".join(f"{line}\n" for line in sorted(set(lines) - had))


def packages() -> tuple[str, ...]:
    """What is built of a version that is not the default."""
    return tuple(f"{MODULE}/cmd/{program}" for program in PROGRAMS)


def derive_module(text: str, version: str) -> str:
    """A go.mod that builds kubernetes as a dependency, from kubernetes's own go.mod."""
    staging = re.findall(r"^\s*(\S+) => \./staging/\S+$", text, re.MULTILINE)
    kept = text.partition("\nreplace (")[0]
    if not staging or "=>" in kept:
        raise TestbedError(f"go.mod of {MODULE} {version}: expected one block of replaces at last")
    kept = re.sub(r"^module .*$", "module slicewise.test/kube", kept, count=1, flags=re.MULTILINE)
    beside = f"v0.{version.removeprefix('v1.')}"
    replaces = "".join(f"\t{name} => {name} {beside}\n" for name in staging)
    return f"{kept}\nrequire {MODULE} {version}\n\nreplace (\n{replaces})\n"


def _write(version: str, origin: Path, folder: Path, pins: str) -> None:
    (folder / "go.mod").write_text(derive_module((origin / "go.mod").read_text(), version))
    (folder / "go.sum").write_text((origin / "go.sum").read_text() + pins)


def _download(go: str, version: str, folder: Path) -> dict[str, str]:
    (folder / "go.mod").write_text("module slicewise.test/kube\n")
    command = [go, "mod", "download", "-json", f"{MODULE}@{version}"]
    found: dict[str, str] = json.loads(_run(command, folder, "-mod=mod"))
    return found


def _run(command: list[str], folder: Path, flags: str) -> str:
    environment = {**os.environ, "GOFLAGS": flags, "CGO_ENABLED": "0"}
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise TestbedError(f"{' '.join(command[:3])} failed; its messages are above")
    return done.stdout


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.removeprefix("v").split("."))
