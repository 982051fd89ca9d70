"""How kubelets and runtimes lay out cgroups, as /proc/PID/cgroup shows them."""

from dataclasses import dataclass

V1 = ("cpu,cpuacct", "memory", "devices", "name=systemd")


@dataclass(frozen=True)
class Layout:
    """One combination of cgroup version, driver, runtime and quality of service."""

    version: int
    driver: str
    runtime: str
    quality: str
    root: str = ""

    def path(self, uid: str, container: str) -> str:
        if self.driver == "cgroupfs":
            return f"{self._cgroupfs_pod(uid)}/{self._cgroupfs_name(container)}"
        if self.driver == "mixed":
            # The kubelet hands out slices, and the runtime is not told to use systemd.
            return f"/system.slice/containerd.service/{self._slice(uid)}:cri-containerd:{container}"
        return f"{self._slice_path(uid)}/{self._scope(container)}"

    def text(self, uid: str, container: str) -> str:
        return self.write(self.path(uid, container))

    def write(self, path: str) -> str:
        if self.version == 2:
            return f"0::{path}\n"
        # A hybrid host mounts an unused v2 hierarchy beside the others.
        lines = [f"{at}:{name}:{path}" for at, name in enumerate(V1, start=1)]
        return "\n".join(["12:rdma:/", *lines, "0::/"]) + "\n"

    def _cgroupfs_pod(self, uid: str) -> str:
        quality = "" if self.quality == "guaranteed" else f"/{self.quality}"
        return f"/{self.root}kubepods{quality}/pod{uid}"

    def _cgroupfs_name(self, container: str) -> str:
        return f"crio-{container}" if self.runtime == "cri-o" else container

    def _slice(self, uid: str) -> str:
        quality = "" if self.quality == "guaranteed" else f"-{self.quality}"
        return f"{self.root}kubepods{quality}-pod{uid.replace('-', '_')}.slice"

    def _slice_path(self, uid: str) -> str:
        middle = "" if self.quality == "guaranteed" else f"/kubepods-{self.quality}.slice"
        return f"/kubepods.slice{middle}/{self._slice(uid)}"

    def _scope(self, container: str) -> str:
        prefix = {"containerd": "cri-containerd", "docker": "docker", "cri-o": "crio"}[self.runtime]
        return f"{prefix}-{container}.scope"


LAYOUTS = [
    Layout(version, driver, runtime, quality)
    for version in (1, 2)
    for driver in ("cgroupfs", "systemd", "mixed")
    for runtime in ("containerd", "docker", "cri-o")
    for quality in ("guaranteed", "burstable", "besteffort")
    if driver != "mixed" or runtime == "containerd"
]
