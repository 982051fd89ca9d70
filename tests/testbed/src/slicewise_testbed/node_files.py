"""The folder of a real node: its own /var/lib, /run and /var/log, and its configuration files.

The machine's own folders of these names are covered inside the node's mount namespace, so the
kubelet and containerd keep their usual paths and the machine keeps its own state.
"""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from slicewise_testbed.certificates import Pair
from slicewise_testbed.runtimes import Runtime
from slicewise_testbed.versions import chosen_version, minor

# The kubelet and the CNI plugins set these on the whole machine. A node sees files that hold the
# wanted values already, so nothing is written and the machine stays as it was.
_SYSCTLS = {
    "kernel/keys/root_maxbytes": "25000000",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "net/ipv4/ip_forward": "1",
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
}


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """Where things of one node are, as the machine sees them."""

    folder: Path

    @property
    def lib(self) -> Path:
        """The node's /var/lib."""
        return self.folder / "lib"

    @property
    def run(self) -> Path:
        """The node's /run."""
        return self.folder / "run"

    @property
    def log(self) -> Path:
        """The node's /var/log."""
        return self.folder / "log"

    @property
    def containerd_socket(self) -> Path:
        """Where containerd listens."""
        return self.run / "containerd" / "containerd.sock"

    def make(self) -> None:
        """The folders exist, and the files that stand in for the machine's settings."""
        for path in (self.lib / "kubelet", self.run / "cdi", self.run / "netns", self.log):
            path.mkdir(parents=True)
        (self.folder / "cni").mkdir()
        for name, value in _SYSCTLS.items():
            self._sysctl(name).parent.mkdir(parents=True, exist_ok=True)
            self._sysctl(name).write_text(f"{value}\n")

    def enclosure(self, ready: Path, cgroup: str) -> str:
        """A shell script that covers the machine's folders, says so, and stays."""
        groups = {"outer": cgroup, "inner": f"{cgroup}/{self.folder.name}"}
        covers = {self.lib: "/var/lib", self.run: "/run", self.log: "/var/log"}
        covers |= {self._sysctl(name): f"/proc/sys/{name}" for name in _SYSCTLS}
        # Some kernels are built without some settings; what is not there cannot be set either.
        lines = [f"[ ! -e {at} ] || mount --bind {_word(own)} {at}" for own, at in covers.items()]
        # Pods may ask for mount propagation, which needs a shared root, as on a booted machine.
        lines += ["mount --make-rshared /"]
        # A new network namespace has sysctl files of its own, so it comes after covering them.
        lines += [_into("--net", f"touch {_word(ready)}; exec sleep infinity")]
        enclosed = "\n".join((_COVER_GROUPS.format(**groups), *lines))
        return _MAKE_GROUPS.format(**groups) + _into("--cgroup", enclosed)

    def write_cni(self, subnet: str) -> None:
        """Pods get addresses of this subnet, reachable from the machine."""
        ranges = [[{"subnet": subnet}]]
        address = {
            "type": "host-local",
            "dataDir": "/run/cni",
            "ranges": ranges,
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        plugins = [{"type": "ptp", "ipMasq": False, "ipam": address}]
        network = {"cniVersion": "1.0.0", "name": "testbed", "plugins": plugins}
        (self.folder / "cni" / "10-testbed.conflist").write_text(json.dumps(network))

    def write_containerd(self, runtime: Runtime, runc: Path, cni_plugins: Path) -> Path:
        """The configuration of containerd."""
        path = self.folder / "containerd.toml"
        path.write_text(runtime.configuration(self.folder / "cni", cni_plugins, runc))
        return path

    def write_kubelet(self, settings: dict[str, Any]) -> Path:
        """The configuration of the kubelet."""
        path = self.folder / "kubelet.yaml"
        path.write_text(yaml.safe_dump(settings))
        return path

    def _sysctl(self, name: str) -> Path:
        return self.folder / "sys" / name


def kubelet_settings(address: str, authority: Path, serving: Pair) -> dict[str, Any]:
    """A KubeletConfiguration for a small machine that is not the kubelet's own."""
    never = ("memory.available", "nodefs.available", "nodefs.inodesFree")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "healthzPort": 0,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        # Without groups for pods, kubelets panic at sidecars with limits of CPU.
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": ["none"],
        **({"failCgroupV1": False} if minor(chosen_version()) >= 31 else {}),
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "enableSystemLogHandler": False,
        "resolvConf": "",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        # A full disk of the machine is not the test's affair.
        "evictionHard": dict.fromkeys((*never, "imagefs.available", "imagefs.inodesFree"), "0%"),
        "imageGCHighThresholdPercent": 100,
        # Devices a plugin reports show up on the Node within this time.
        "nodeStatusUpdateFrequency": "2s",
    }


def _into(namespace: str, script: str) -> str:
    return f"exec unshare {namespace} sh -euc {shlex.quote(script)}"


def _word(path: Path) -> str:
    return shlex.quote(str(path))


# containerd puts containers below the root of each hierarchy. A node sees a group of its own as
# that root, so what a killed node leaves can be found and removed.
# In the one hierarchy of version 2, a group that hands controllers down may hold no process.
_MAKE_GROUPS = """\
while read -r _ at kind _; do
  case $kind in cgroup | cgroup2) ;; *) continue ;; esac
  for group in {outer} {inner}; do
    mkdir -p "$at/$group"
    parent=$(dirname "$at/$group")
    if [ $kind = cgroup2 ]; then
      [ "$parent" = "$at" ] || for controller in $(cat "$parent/cgroup.controllers"); do
        echo "+$controller" > "$parent/cgroup.subtree_control"
      done
    elif [ -e "$parent/cpuset.cpus" ]; then
      cat "$parent/cpuset.cpus" > "$at/$group/cpuset.cpus"
      cat "$parent/cpuset.mems" > "$at/$group/cpuset.mems"
    fi
  done
  echo $$ > "$at/{inner}/cgroup.procs"
done < /proc/self/mounts
"""
# The list of mounts is read before the first is added, or it would never end.
_COVER_GROUPS = """\
while read -r _ at kind _; do
  case $kind in cgroup | cgroup2) ;; *) continue ;; esac
  mkdir "$at/{inner}/holder"
  [ $kind = cgroup ] || echo $$ > "$at/{inner}/holder/cgroup.procs"
  mount --bind "$at/{inner}" "$at"
done << MOUNTS
$(cat /proc/self/mounts)
MOUNTS
"""
