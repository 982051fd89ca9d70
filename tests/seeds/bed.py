"""One cluster on which every statement is tried: a real node with GPUs, an agent, an extender, the
metrics API, and simulated nodes of the systems' own agents."""

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from e2e import wirings
from e2e.agent_node import AgentNode
from e2e.gpu_cluster import pod
from e2e.gpu_nodes import gpushare_node
from e2e.metrics_server import MetricsServer
from e2e.recorded_gpus import make_gpus
from fakes.driver_tree import make_driver
from slicewise_testbed.binaries import Binaries
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.cuda import build, limiter
from slicewise_testbed.images import Image, busybox_layer
from slicewise_testbed.packages import BUSYBOX, locate
from slicewise_testbed.runtimes import WITH_CDI
from slicewise_testbed.settings import Settings
from slicewise_testbed.simulated_nodes import SimulatedNodes
from slicewise_testbed.testbed import Testbed, wait_until

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
GPUS = make_gpus(
    (4, "NVIDIA A10", 24576), (2, "NVIDIA A100-SXM4-40GB", 40960), (2, "Tesla T4", 15360)
)
# The images that the documents' pods name, made here: there is no registry.
_PYTHON = b"#!/bin/sh\necho python $*\nexec sleep 100000\n"
_IMAGES = (
    "registry.tydic.com/cube-studio/gpu-player:v2",
    "docker.io/cheyang/gpu-player:v2",
    "docker.io/nvidia/cuda:10.0-base",
)
A30_NODE = "dev-server-153"


class SeedBed:
    """The cluster, and what a person types at it."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        self.home = folder / "work"
        self.home.mkdir()
        self.nodes = SimulatedNodes(plane).start()
        self.inspected = self._inspect_eight_gpus()
        self.node = AgentNode(plane, WITH_CDI, GPUS)
        self.node.node.import_images(_make_images())
        self.server = MetricsServer(plane)
        self.server.start()
        self.agent_flags = self._write_report_files()
        self.node.start_agent(*self.agent_flags)
        profiles = [{"schedulerName": name} for name in ("default-scheduler", "gpu-scheduler")]
        self.node.start_extender(profiles=profiles)
        self.cluster = self.node.cluster

    @property
    def minor(self) -> int:
        """The minor version of the cluster."""
        with self.plane.api() as api:
            return int(api.get("/version")["minor"].rstrip("+"))

    def type(self, command: str, *, check: bool = False) -> subprocess.CompletedProcess[str]:
        """What a shell does with the command, in a folder of its own, as the cluster's admin."""
        environment = self.plane.kubectl_environment()
        environment["PATH"] = os.pathsep.join((str(BIN), environment["PATH"]))
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.home,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert not check or done.returncode == 0, done.stderr + done.stdout
        return done

    def write(self, name: str, text: str) -> Path:
        """A file in the folder in which commands are typed."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    @contextmanager
    def space(self, name: str) -> Iterator[str]:
        """A namespace that takes pods, and is emptied afterwards."""
        self.cluster.make_namespace(name)
        try:
            yield name
        finally:
            kinds = "statefulsets.apps,deployments.apps"
            self.plane.kubectl("delete", kinds, "--all", "-n", name)
            with self.plane.api() as api:
                api.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)
            wait_until(lambda: not self.cluster.pods(name), 60, lambda: f"pods are left in {name}")

    def create(self, space: str, text: str) -> None:
        """kubectl takes the text as it stands."""
        self.plane.kubectl("create", "-n", space, "-f", "-", stdin=text)

    def wait_phase(self, space: str, phase: str, count: int = 1) -> list[dict[str, Any]]:
        """The pods of the namespace, once so many are in the phase."""

        def reached() -> bool:
            found = self.cluster.pods(space)
            return sum(each["status"]["phase"] == phase for each in found) == count

        wait_until(reached, 60, lambda: self.complain(space))
        return self.cluster.pods(space)

    def models(self, pod: Mapping[str, Any]) -> set[str]:
        """The models of the GPUs that a pod was given when it was bound."""
        given = self.node.allocations([dict(pod)])[pod["metadata"]["name"]]
        return {gpu.model for gpus in given.values() for gpu in gpus}

    def ask_agent(self, path: str) -> str:
        return self.node.ask(path)

    def complain(self, space: str) -> str:
        """What is to be known of pods that are not as they should be."""
        events = self.plane.kubectl("get", "events", "-n", space)
        told = [(each["metadata"]["name"], each["status"]) for each in self.cluster.pods(space)]
        return f"{told}\n{events}\n{self.node.agent_tail()}"

    def _inspect_eight_gpus(self) -> str:
        """What the tool prints of the document's own node, before there is any other."""
        self.nodes.add([gpushare_node(A30_NODE, 23, 8)])
        printed = self.type("kubectl-inspect-gpushare", check=True).stdout
        with self.plane.api() as api:
            api.delete(f"/api/v1/nodes/{A30_NODE}")
        return printed

    def _write_report_files(self) -> tuple[str, ...]:
        name, folder = self.node.node.name, self.node.node.folder
        (folder / "report-token").write_text(self.server.make_token(name))
        (folder / "report-ca.pem").write_text(self.server.authority())
        host = make_driver(self.folder / "host")
        build("cuda")
        return (
            f"--report-to=https://localhost:{self.server.port}",
            f"--report-ca={folder / 'report-ca.pem'}",
            f"--report-token={folder / 'report-token'}",
            f"--driver-root={host}",
            f"--limiter-library={limiter()}",
            f"--limits={folder / 'limits'}",
            f"--state={folder / 'state'}",
        )


@contextmanager
def seed_bed(binaries: Binaries, folder: Path) -> Iterator[SeedBed]:
    """The bed, with everything running."""
    with Testbed.start() as bed:
        plane = ControlPlane(bed, binaries, Settings(audit="Request")).start()
        made = SeedBed(plane, folder)
        yield made
        made.node.clear()
        made.server.stop()


def wire_everything(bed: SeedBed) -> None:
    """The scheduler asks the extender for the pods of all systems again."""
    profiles = [{"schedulerName": name} for name in ("default-scheduler", "gpu-scheduler")]
    bed.cluster.schedule_with(wirings.everything(bed.cluster.url()), profiles=profiles)


def dump(*documents: Any) -> str:
    return yaml.safe_dump_all(documents)


def rest(name: str, limits: Mapping[str, object], **fields: Any) -> dict[str, Any]:
    """A pod that sleeps with these limits."""
    made = pod(name, limits, **fields)
    (container,) = made["spec"]["containers"]
    container |= {"imagePullPolicy": "Never", "command": ["sleep", "100000"]}
    return made


def _make_images() -> list[Image]:
    content = io.BytesIO(busybox_layer(locate(BUSYBOX)))
    with tarfile.open(fileobj=content, mode="a") as layer:
        for name in ("usr/bin/python", "app/main.py"):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(_PYTHON), 0o755
            layer.addfile(entry, io.BytesIO(_PYTHON))
    command = ("/bin/sleep", "100000")
    return [Image(name, content.getvalue(), command, {"PATH": "/bin"}) for name in _IMAGES]
