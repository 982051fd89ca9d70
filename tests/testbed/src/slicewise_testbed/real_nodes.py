"""Real nodes: a kubelet and a containerd each, in a mount namespace of their own.

Both stay in the machine's network, or the testbed's own, where each node has an address of its own.
"""

import os
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from slicewise_testbed.binaries import Binaries
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.errors import TestbedError
from slicewise_testbed.images import Image, standard_images, write_images
from slicewise_testbed.links import Links, Place
from slicewise_testbed.node_files import NodeFiles, kubelet_settings
from slicewise_testbed.packages import BUSYBOX, CNI, PACKAGES, RUNC, locate
from slicewise_testbed.readiness import node_is_ready
from slicewise_testbed.services import dns_settings
from slicewise_testbed.settings import NodeSettings
from slicewise_testbed.testbed import wait_until

READY_SECONDS = 90.0


class RealNode:
    """A running node; its paths are those the machine sees."""

    def __init__(
        self, plane: ControlPlane, files: NodeFiles, place: Place, settings: NodeSettings
    ) -> None:
        self.name = files.folder.name
        self.settings = settings
        self.address = place.address
        self.link = place.link
        self.folder = files.folder
        self.cdi = files.run / "cdi"
        self.device_plugins = files.lib / "kubelet" / "device-plugins"
        self.pod_resources = files.lib / "kubelet" / "pod-resources" / "kubelet.sock"
        self.containerd_socket = files.containerd_socket
        self._plane = plane
        self._binaries = settings.runtime.binaries(plane.binaries)
        self._files = files
        self._holder = place.holder

    def start_containerd(self, images: Sequence[Image]) -> None:
        """containerd answers, and holds these images."""
        runtime = self.settings.runtime
        config = self._files.write_containerd(runtime, locate(RUNC), locate(CNI))
        self._spawn("containerd", "--config", str(config))
        wait_until(
            self._containerd_answers, 30, lambda: f"no containerd: {self._tail('containerd')}"
        )
        self.import_images(images)

    def import_images(self, images: Sequence[Image]) -> None:
        """Pods of this node can use these images, with imagePullPolicy Never."""
        archive = self.folder / "images.tar"
        write_images(archive, images)
        self.import_archive(archive)
        archive.unlink()

    def import_archive(self, archive: Path) -> None:
        """Pods of this node can use the images in this file."""
        ctr = [self._binaries.path("ctr"), "--namespace", "k8s.io", "images", "import"]
        self.run_inside(*ctr, *self.settings.runtime.import_flags, str(archive))

    def start_kubelet(self) -> None:
        """The kubelet runs, again if it was stopped; the node is Ready some seconds later."""
        plane = self._plane
        user = plane.kubeconfig(f"system:node:{self.name}", ("system:nodes",))
        serving = plane.authority.issue(f"kubelet-{self.name}", hosts=(self.name, self.address))
        authority = plane.authority.certificate.certificate
        settings = {
            **kubelet_settings(self.address, authority, serving),
            **({} if plane.bed.network is None else dns_settings(plane.address)),
            **self.settings.kubelet,
        }
        arguments = [
            f"--config={self._files.write_kubelet(settings)}",
            f"--kubeconfig={user.path}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
        ]
        if labels := ",".join(f"{key}={text}" for key, text in self.settings.labels.items()):
            arguments.append(f"--node-labels={labels}")
        self._spawn("kubelet", *arguments)

    def stop_kubelet(self, number: signal.Signals = signal.SIGTERM) -> None:
        """The kubelet is gone; containers run on."""
        self._plane.bed.stop(f"{self.name}-kubelet", number)

    def wait_ready(self) -> None:
        """The node is Ready, and has lost the taints of a new node."""
        with self._plane.api() as api:
            try:
                api.wait_for(f"/api/v1/nodes/{self.name}", node_is_ready, READY_SECONDS)
            except TestbedError as broken:
                raise TestbedError(f"{broken}; kubelet: {self._tail('kubelet')}") from broken

    def run_inside(self, *argv: str) -> str:
        """What a program printed that sees the node's folders."""
        return self._plane.bed.run(f"{self.name}-command", [*self._enter(), *argv])

    def spawn_inside(self, name: str, *argv: str, env: Mapping[str, str] | None = None) -> int:
        """The process id, as the node sees it, of a started program that sees its folders."""
        return self._plane.bed.spawn(f"{self.name}-{name}", [*self._enter(), *argv], env)

    def stop_inside(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """The program started inside is gone."""
        self._plane.bed.stop(f"{self.name}-{name}", number)

    def _spawn(self, program: str, *arguments: str) -> None:
        folders = (*self._binaries.folders, *self._plane.binaries.folders)
        # containerd finds its shim on the PATH, and the kubelet its mount helpers.
        path = os.pathsep.join((*map(str, folders), os.environ["PATH"], "/usr/sbin", "/sbin"))
        self.spawn_inside(program, Binaries(folders).path(program), *arguments, env={"PATH": path})

    def _enter(self) -> list[str]:
        namespaces = f"/proc/{self._holder}/ns"
        return ["nsenter", f"--mount={namespaces}/mnt", f"--cgroup={namespaces}/cgroup", "--"]

    def _containerd_answers(self) -> bool:
        if not self._plane.bed.alive(f"{self.name}-containerd"):
            raise TestbedError(f"containerd ended: {self._tail('containerd')}")
        with socket.socket(socket.AF_UNIX) as line:
            return line.connect_ex(str(self._files.containerd_socket)) == 0

    def _tail(self, program: str) -> str:
        return self._plane.bed.tail(f"{self.name}-{program}")


class RealNodes:
    """The real nodes of one control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        if os.geteuid() != 0:
            raise TestbedError("real nodes need root: mounts, network links and control groups")
        if missing := plane.binaries.missing(("kubelet",)):
            raise TestbedError(f"no {missing[0]} on this machine; run `make kube`")
        for package in PACKAGES:
            locate(package)
        self._plane = plane
        self._links = Links(plane.bed)

    def add(self, *names: str, settings: NodeSettings | None = None) -> tuple[RealNode, ...]:
        """New nodes, all Ready."""
        images = standard_images(locate(BUSYBOX))
        nodes = tuple(self._enclose(name, settings or NodeSettings()) for name in names)
        for node in nodes:
            node.start_containerd(images)
            node.start_kubelet()
        for node in nodes:
            node.wait_ready()
        return nodes

    def _enclose(self, name: str, settings: NodeSettings) -> RealNode:
        bed = self._plane.bed
        files = NodeFiles(bed.folder / "nodes" / name)
        files.make()
        ready = files.folder / "enclosed"
        script = files.enclosure(ready, bed.folder.name)
        unshare = ["unshare", "--mount", "--propagation", "private"]
        holder = bed.spawn(name, [*unshare, "sh", "-euc", script])
        wait_until(ready.exists, 10, lambda: f"{name} has no namespaces: {bed.tail(name)}")
        place = self._links.attach(holder)
        files.write_cni(place.subnet)
        return RealNode(self._plane, files, place, settings)
