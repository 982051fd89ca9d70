"""How long a pod with one share of a GPU by claim takes from its creation to running.

A real node: kube-scheduler, a kubelet, containerd and the agent, whose GPUs do not exist. Each
level is measured in turn: claims alone (`all`), claims and pods by resource names on the same GPUs
(`shared`), and claims that our engine allocates (`engine`).
"""

import json
import os
import statistics
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.bindrate import USER, grant_rights, is_ready
from slicewise.explain.claim_manifests import write_device_class
from slicewise.model.claim import DRIVER
from slicewise_testbed.binaries import CONTROL_PLANE, find_binaries
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.ports import free_port
from slicewise_testbed.real_nodes import RealNode, RealNodes
from slicewise_testbed.testbed import Testbed, wait_until

STARTS: Final = 10
SECONDS: Final = 120.0
LEVELS: Final = {"level0": "all", "level1": "shared", "level2": "engine"}
AGENT: Final = "slicewise-agent"
GROUP: Final = "/apis/resource.k8s.io/v1"
HOME: Final = "/api/v1/namespaces/default/pods"
TEMPLATE: Final = "share"
_GPUS: Final = 4
_MEMORY: Final = 24576


def measure_start() -> Iterator[tuple[str, float]]:
    """The median of ten starts at each level, and the longest."""
    if os.geteuid() != 0:
        print("dra.start skipped: real nodes need root", file=sys.stderr)
        return
    if missing := find_binaries().missing((*CONTROL_PLANE, "kubelet")):
        print(f"no {', '.join(missing)} on this machine; `make kube` builds them", file=sys.stderr)
        return
    with Testbed.start() as bed:
        plane = ControlPlane(bed, find_binaries()).start()
        (node,) = RealNodes(plane).add("gpu")
        for user in (AGENT, USER):
            grant_rights(plane, user)
        with plane.api() as api:
            api.create(f"{GROUP}/deviceclasses", write_device_class())
            api.create(f"{GROUP}/namespaces/default/resourceclaimtemplates", claim_template())
        for level, mode in LEVELS.items():
            with _agent(plane, node, mode), _extender(plane, needed=mode != "all"):
                _time_start(plane, f"{level}-first")
                times = [_time_start(plane, f"{level}-{at}") for at in range(STARTS)]
            yield f"{level}_p50_s", statistics.median(times)
            yield f"{level}_max_s", max(times)


def _time_start(plane: ControlPlane, name: str) -> float:
    """Seconds from asking for the pod until the API server says that it runs; it is gone then."""
    path = f"{HOME}/{name}"
    with plane.api() as api:
        start = time.monotonic()
        api.create(HOME, claiming_pod(name))
        api.wait_for(path, lambda pod: pod["status"].get("phase") == "Running", SECONDS)
        seconds = time.monotonic() - start
        api.delete(path, gracePeriodSeconds=0)
        claims = f"{GROUP}/resourceclaims"
        wait_until(lambda: not api.get(claims)["items"], SECONDS, lambda: "a claim is left")
    return seconds


@contextmanager
def _agent(plane: ControlPlane, node: RealNode, mode: str) -> Iterator[None]:
    """An agent of the node that has published its slice."""
    folder, port = node.folder, free_port()
    gpus = [
        {"model": "NVIDIA A10", "memory": _MEMORY, "uuid": f"GPU-5e1ec7ed-0000-4000-8000-{at:012}"}
        for at in range(_GPUS)
    ]
    (folder / "gpus.yaml").write_text(json.dumps({"gpus": gpus}))
    devices = folder / "dev"
    devices.mkdir(exist_ok=True)
    for at, name in enumerate((*(f"nvidia{at}" for at in range(_GPUS)), "nvidiactl", "nvidia-uvm")):
        if not (devices / name).exists():
            os.mknod(devices / name, 0o666 | 0o020000, os.makedev(195, at))
    flags = {
        "--node-name": node.name,
        "--kubeconfig": plane.kubeconfig(AGENT).path,
        "--nvml": f"simulated:{folder / 'gpus.yaml'}",
        "--dra": mode,
        "--dev": devices,
        "--address": f"127.0.0.1:{port}",
        "--virtual-manager-path": folder / "vm",
        "--driver-volumes": folder / "vdriver",
        "--display-socket": folder / "display.sock",
    }
    words = [f"{name}={value}" for name, value in flags.items()]
    program = str(Path(sys.executable).with_name("slicewise"))
    node.spawn_inside("agent", program, "agent", *words, env={"PATH": os.environ["PATH"]})
    tail = f"{node.name}-agent"
    try:
        wait_until(
            lambda: _answers(f"http://127.0.0.1:{port}/readyz"),
            60,
            lambda: f"no agent: {plane.bed.tail(tail)}",
        )
        with plane.api() as api:
            wait_until(
                lambda: api.get(f"{GROUP}/resourceslices")["items"],
                60,
                lambda: f"no slice: {plane.bed.tail(tail)}",
            )
        yield
    finally:
        node.stop_inside("agent")


@contextmanager
def _extender(plane: ControlPlane, *, needed: bool) -> Iterator[None]:
    """An extender that decides, where the level needs one."""
    if not needed:
        yield
        return
    address = f"127.0.0.1:{free_port()}"
    program = str(Path(sys.executable).with_name("slicewise"))
    access = plane.kubeconfig(USER).path
    flags = [f"--kubeconfig={access}", f"--address={address}", "--dra", "--no-leader-elect"]
    plane.bed.spawn(USER, [program, "extender", *flags])
    try:
        ready = f"http://{address}"
        wait_until(lambda: is_ready(ready), 30, lambda: f"no extender: {plane.bed.tail(USER)}")
        yield
    finally:
        plane.bed.stop(USER)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def claim_template() -> dict[str, Any]:
    """A template of claims for 30 percent and 4 GiB of a GPU."""
    amounts = {"cores": "30", "memory": "4Gi"}
    exactly = {"deviceClassName": DRIVER, "capacity": {"requests": amounts}}
    devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
    return {"metadata": {"name": TEMPLATE}, "spec": {"spec": {"devices": devices}}}


def claiming_pod(name: str) -> dict[str, Any]:
    """A pod with a claim of that template."""
    container = {
        "name": "main",
        "image": "busybox:local",
        "imagePullPolicy": "Never",
        "command": ["sleep", "3600"],
        "resources": {"claims": [{"name": "gpu"}]},
    }
    claim = {"name": "gpu", "resourceClaimTemplateName": TEMPLATE}
    return {
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "resourceClaims": [claim],
        },
    }
