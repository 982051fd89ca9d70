"""A cluster as users have it: Services, names, real pods; and Slicewise in it by its chart alone.

The image is the one that `make image` builds, imported into the node as an air-gapped site would.
"""

import io
import json
import os
import platform
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from slicewise_playground.kubelet.simulated_node import SimulatedNode
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.images import Image, add_file, busybox_layer
from slicewise_testbed.packages import BUSYBOX, locate
from slicewise_testbed.real_nodes import RealNodes
from slicewise_testbed.runtimes import choose_for_large_images
from slicewise_testbed.services import start_services
from slicewise_testbed.settings import NodeSettings
from slicewise_testbed.simulated_nodes import SimulatedNodes
from slicewise_testbed.testbed import wait_until

Pod = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy" / "chart" / "slicewise"
EXAMPLES = ROOT / "examples"
NAMESPACE = "slicewise-system"
RELEASE = "slicewise"
LOAD_TAINT = {"key": "load", "effect": "NoSchedule"}
# The images that the examples name, as far as anything here runs in them.
NAMED_IMAGES = (
    "docker.io/nvidia/cuda:12.4.1-base-ubuntu22.04",
    "docker.io/nvidia/cuda:10.0-base",
    "docker.io/cheyang/gpu-player:v2",
    "registry.tydic.com/cube-studio/gpu-player:v2",
)
_PROGRAMS = ("usr/local/nvidia/bin/nvidia-smi", "usr/bin/python", "bin/player")
_SCRIPT = b"#!/bin/sh\nexec /bin/sleep 100000\n"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
SETTLE = int(os.environ.get("SLICEWISE_CHART_SETTLE", "15"))
# What differs from a user's values: GPUs that do not exist, and folders that a test may write to.
VALUES: Mapping[str, Any] = {
    "image": {"pullPolicy": "Never"},
    "withdraw": {"settleSeconds": SETTLE},
    "scheduler": {"otherNames": ["gpu-scheduler"], "image": {"pullPolicy": "Never"}},
    "agent": {
        "gpuManagerPath": "/var/lib/gpu-manager",
        "args": ["--dev=/var/lib/slicewise/dev"],
        "driver": {
            "mode": "simulated",
            "description": {
                "gpus": [
                    {"model": "NVIDIA A10", "memory": 24576, "count": 4},
                    {"model": "Tesla T4", "memory": 15360, "count": 2},
                ]
            },
        },
    },
}


class ChartCluster:
    """One control plane with Services, one real node, and simulated ones for load."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.bed = plane.bed
        labels = {"slicewise.io/agent": "on"}
        many = {"maxPods": 250, "kubeAPIQPS": 500, "kubeAPIBurst": 1000}
        runtime = choose_for_large_images(self.bed.folder)
        settings = NodeSettings(labels=labels, kubelet=many, runtime=runtime)
        (self.node,) = RealNodes(plane).add("gpu", settings=settings)
        start_services(plane, self.node.name)
        self._simulated = SimulatedNodes(plane).start()
        self._import_images()
        self._values = self.bed.folder / "values.json"

    def helm(self, *arguments: str) -> str:
        """What helm printed; a failure is an error that carries its message."""
        done = subprocess.run(
            [self.plane.binaries.path("helm"), *arguments, f"--namespace={NAMESPACE}"],
            env=self.plane.kubectl_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"helm {arguments[0]}: {done.stderr.strip()}\n{self.describe()}")
        return done.stdout

    def render(self, values: Path | None = None) -> list[dict[str, Any]]:
        """The objects that a release would have with these values, or with the default ones."""
        flags = () if values is None else ("--values", str(values))
        text = self.helm("template", RELEASE, str(CHART), *flags, "--no-hooks")
        return [each for each in yaml.safe_load_all(text) if each]

    def describe(self) -> str:
        """All pods, and the last words of ours."""
        pods = self.kubectl("get", "pods", "--all-namespaces", "-o", "wide")
        ours = ("--selector=app.kubernetes.io/part-of=slicewise", f"--namespace={NAMESPACE}")
        how = ("--all-containers", "--prefix", "--tail=12", "--ignore-errors")
        return f"{pods}\n{self.kubectl('logs', *ours, *how)}"

    def values(self, **changes: Any) -> str:
        """The flag with a file of the test's values, and what changes in them."""
        self._values.write_text(json.dumps({**VALUES, **changes}))
        return f"--values={self._values}"

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl printed."""
        return self.plane.kubectl(*arguments, stdin=stdin)

    def command(self, name: str, *arguments: str) -> str:
        """What one of our own commands printed, as a user at their desk runs it."""
        done = subprocess.run(
            [str(Path(sys.executable).with_name(name)), *arguments],
            env={**os.environ, **self.plane.kubectl_environment()},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{name} {' '.join(arguments)}: {done.stderr}{done.stdout}"
        return done.stdout

    def pods(self, namespace: str) -> list[dict[str, Any]]:
        """The pods of a namespace."""
        with self.plane.api() as api:
            found: list[dict[str, Any]] = api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return found

    def wait(self, what: str, condition: Callable[[], object], seconds: float = 90) -> None:
        """The condition holds in time; if not, the complaint shows pods and events."""

        def complain() -> str:
            pods = self.kubectl("get", "pods", "--all-namespaces", "-o", "wide")
            events = self.kubectl("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp")
            return f"{what}:\n{pods}\n" + "\n".join(events.splitlines()[-15:])

        wait_until(condition, seconds, complain, pause=0.3)

    def wait_running(self, namespace: str, count: int, seconds: float = 120) -> list[Pod]:
        """The pods of a namespace once so many of them run."""
        self.wait(
            f"not {count} pods run in {namespace}",
            lambda: [p["status"]["phase"] for p in self.pods(namespace)] == ["Running"] * count,
            seconds,
        )
        return self.pods(namespace)

    def add_load_nodes(self, *nodes: SimulatedNode) -> None:
        """Simulated nodes that take the pods of a load, and no pod of the release."""
        self._simulated.add(replace(node, taints=(LOAD_TAINT,)) for node in nodes)

    def remove_load_nodes(self, *nodes: SimulatedNode) -> None:
        """The simulated nodes are gone."""
        for node in nodes:
            self._simulated.remove(node.name)

    def read_nodes(self) -> dict[str, dict[str, Any]]:
        """Every Node as it is, without what changes by itself."""
        with self.plane.api() as api:
            return {
                each["metadata"]["name"]: _settle(each)
                for each in api.get("/api/v1/nodes")["items"]
            }

    def _import_images(self) -> None:
        (self.node.folder / "lib" / "slicewise" / "dev").mkdir(parents=True)
        self.node.import_archive(build_image())
        layer = _add_programs(busybox_layer(locate(BUSYBOX)))
        images = [Image(name, layer, ("player",), {"PATH": "/bin"}) for name in NAMED_IMAGES]
        images.append(_scheduler_image(self.plane))
        self.node.import_images(images)


def build_image() -> Path:
    """The archive of this machine's architecture, built again when anything in it is newer."""
    architecture = _ARCHITECTURES[platform.machine()]
    built = sorted((ROOT / "out" / "image").glob(f"slicewise-*-{architecture}.tar"))
    sources = (*(ROOT / "src").rglob("*.py"), *(ROOT / "supply" / "image").rglob("*.py"))
    newest = max(each.stat().st_mtime for each in (*sources, ROOT / "constraints.txt"))
    if not built or built[-1].stat().st_mtime < newest:
        command = [sys.executable, str(ROOT / "supply" / "build_image.py"), architecture]
        subprocess.run(command, check=True)
        built = sorted((ROOT / "out" / "image").glob(f"slicewise-*-{architecture}.tar"))
    return built[-1]


def read_example(name: str) -> list[dict[str, Any]]:
    """The documents of an example, as they are."""
    return [each for each in yaml.safe_load_all((EXAMPLES / name).read_text()) if each]


def _scheduler_image(plane: ControlPlane) -> Image:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as layer:
        program = Path(plane.binaries.path("kube-scheduler")).read_bytes()
        add_file(layer, "usr/local/bin/kube-scheduler", program, 0o755)
    with plane.api() as api:
        version = api.get("/version")["gitVersion"]
    path = {"PATH": "/usr/local/bin"}
    name = f"registry.k8s.io/kube-scheduler:{version}"
    return Image(name, content.getvalue(), ("kube-scheduler",), path)


def _add_programs(layer: bytes) -> bytes:
    content = io.BytesIO(layer)
    with tarfile.open(fileobj=content, mode="a") as archive:
        for name in _PROGRAMS:
            add_file(archive, name, _SCRIPT, 0o755)
    return content.getvalue()


def _settle(node: dict[str, Any]) -> dict[str, Any]:
    metadata = {
        key: value
        for key, value in node["metadata"].items()
        if key not in ("resourceVersion", "managedFields", "creationTimestamp")
    }
    status = {key: value for key, value in node["status"].items() if key != "images"}
    conditions = [
        {key: value for key, value in each.items() if not key.endswith("Time")}
        for each in status.pop("conditions")
    ]
    return {**node, "metadata": metadata, "status": {**status, "conditions": conditions}}
