"""A cluster under fire: embedded API, scheduler, extenders that come and go, the final count."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import Future
from itertools import count, cycle, islice
from time import monotonic, sleep

import builders
from chaos.relay import Relay, address
from slicewise.dialects import ALLOCATION, DEFAULT, GPUS, write_gpus
from slicewise.extender.run import ExtenderSettings, run_extender
from slicewise.kube.leading.fence import LeaseTiming
from slicewise.model.backoff import Backoff
from slicewise.placement import UNLIMITED, feasible
from slicewise_playground.cluster import Playground
from slicewise_playground.controlplane.scheduler import SchedulerDelays, SmallScheduler
from slicewise_playground.demo.allocation_check import AllocationCheck
from slicewise_playground.demo.run import build_profiles
from slicewise_playground.kubelet.simulated_node import SimulatedNode
from slicewise_playground.kubelet.simulated_nodes import SimulatedNodes

# One kind of pod per system; together the burst asks for a little more than there is.
KINDS = (
    {"nvidia.com/vcuda-core": "30", "nvidia.com/vcuda-memory": "5000"},
    {"aliyun.com/gpu-mem": "3"},
    {"elasticgpu.io/gpu-core": "20", "elasticgpu.io/gpu-memory": "4000"},
    {"slicewise.io/cores": "40", "slicewise.io/memory": "9000"},
    {"slicewise.io/gpu": "2", "slicewise.io/memory": "6000"},
)
# Every so many pods one asks for a whole GPU, which its scheduler binds by itself.
WHOLE = {"nvidia.com/gpu": "1"}
WHOLE_EVERY = 12
PLENTY = {"cpu": "999", "memory": "9Ti", "pods": "999"}
PLENTY |= dict.fromkeys(DEFAULT.resources, "9999999")
QUICK = SchedulerDelays(Backoff(0.05, 0.4), bind_seconds=1.0)
TERM = LeaseTiming(lease_seconds=2.0, renew_seconds=1.2, retry_seconds=0.3)


class Bed:
    """A cluster of GPU nodes whose scheduler reaches whichever extender is ready."""

    def __init__(self, nodes=12, gpus=8, split=False):
        self.playground = Playground()
        rows = [builders.node(f"n{at}", gpus) for at in range(nodes)]
        published = [
            SimulatedNode(
                row.name,
                PLENTY | {"nvidia.com/gpu": str(gpus)},
                annotations={GPUS: write_gpus(row)},
                awaits={"nvidia.com/gpu": ALLOCATION},
            )
            for row in rows
        ]
        self.playground.run(SimulatedNodes(self.playground.api, published).run)
        self.backends = []
        self._split = split
        """Whether the scheduler asks every extender in turn, whoever leads."""
        self._turn = count()
        self.front = Relay(self._choose)
        self.line = Relay(self._reach_api)
        """A way to the API that can be cut."""
        profiles = build_profiles(self.front.url)
        api = self.playground.api
        self.playground.run(SmallScheduler(api, lambda: self.playground.url, profiles, QUICK).run)

    def __enter__(self):
        self.playground.start()
        self.front.start()
        self.line.start()
        return self

    def __exit__(self, *_):
        self.playground.faults.clear()
        self.line.restore()
        for backend in self.backends:
            backend.stop()
        self.playground.stop()
        self.front.stop()
        self.line.stop()

    def _choose(self):
        alive = [backend for backend in self.backends if backend.url]
        if self._split and alive:
            return address(alive[next(self._turn) % len(alive)].url)
        for backend in self.backends:
            if backend.ready():
                return address(backend.url)
        raise OSError("no extender is ready")

    def _reach_api(self):
        return address(self.playground.url)

    def add(self, backend):
        """One more extender, started."""
        self.backends.append(backend)
        return backend

    def burst(self, many):
        """Create so many pods of all kinds at once."""
        for at, shares in enumerate(islice(cycle(KINDS), many)):
            limits = WHOLE if at % WHOLE_EVERY == WHOLE_EVERY - 1 else shares
            container = {"name": "c0", "image": "x", "resources": {"limits": limits}}
            meta = {"name": f"p{at}", "namespace": "default"}
            self.playground.create("pods", {"metadata": meta, "spec": {"containers": [container]}})

    def bound(self):
        """The pods that are on a node."""
        return [pod for pod in self.playground.objects("pods") if pod["spec"].get("nodeName")]

    def wait_bound(self, many):
        """Return once so many pods are bound."""
        self.wait(lambda: len(self.bound()) >= many, f"{many} bound pods", pause=0.05)

    def check(self):
        """What the API's objects say, read again."""
        return AllocationCheck(self.playground.objects("nodes"), self.playground.objects("pods"))

    def waiting_though_they_fit(self):
        """Pods on no node that some node could take."""
        check = self.check()
        return [
            pod.name
            for pod in check.pods
            if pod.node is None
            and any(
                feasible(state.release(pod.uid), DEFAULT.read_request(pod), UNLIMITED)
                for state in check.snapshot
            )
        ]

    def wait(self, reached, what, seconds=90, pause=0.0):
        """Return once a state is reached, looking again on every change of pods, but seldom.

        Looking closely takes time from the cluster itself, which runs in this process.
        """
        changed, end = threading.Event(), monotonic() + seconds
        leave = self.playground.store.subscribe("pods", changed.set)
        try:
            while not reached():
                assert monotonic() < end, f"not reached: {what}"
                sleep(pause)
                changed.wait(0.1)
                changed.clear()
        finally:
            leave()

    def settle(self):
        """Return once every pod is placed, or has nowhere to go."""
        fits = "all placed or without room"
        self.wait(lambda: not self.waiting_though_they_fit(), fits, pause=1.0)
        named = "all named, or told that they are not"
        self.wait(lambda: not self.unnamed() - self.told(), named, pause=0.3)

    def unnamed(self):
        """The UIDs of pods that their scheduler bound and that do not say which GPUs they have."""
        return {
            pod["metadata"]["uid"]
            for pod in self.bound()
            if "nvidia.com/gpu" in pod["spec"]["containers"][0]["resources"]["limits"]
            and ALLOCATION not in pod["metadata"].get("annotations", {})
        }

    def told(self):
        """The UIDs of pods whose events say that they were bound where no GPU was free."""
        return {
            event["involvedObject"]["uid"]
            for event in self.playground.objects("events")
            if event["reason"] == "GpuNotAssigned"
        }


def check_everything(bed, many, stranded=0):
    """Hold the cluster to every invariant that no fault may break.

    Of the pods that their scheduler binds by itself, a fault may strand so many: bound by an
    answer that nobody remembers, where others have taken the last GPU since.
    """
    bed.settle()
    assert len(bed.playground.objects("pods")) == many
    lost = bed.unnamed()
    assert len(lost) <= stranded
    pods = [pod for pod in bed.playground.objects("pods") if pod["metadata"]["uid"] not in lost]
    check = AllocationCheck(bed.playground.objects("nodes"), pods)
    assert check.problems() == ()
    checked = [check.check_pod(pod) for pod in check.pods if pod.node]
    assert [given for given in checked if given.broken] == []
    assert len(checked) == len(bed.bound()) - len(lost)
    once = {f"default/{pod['metadata']['name']}": 1 for pod in bed.bound()}
    assert bed.playground.writes("create", "pods/binding") == once
    assert not bed.playground.writes("*", "nodes")
    assert not bed.playground.writes("*", "nodes/status")
    leader = next(each for each in bed.backends if each.ready())
    bed.wait(
        lambda: leader.free() == count_free(bed.check()), "the ledger equals what the API says"
    )


def count_free(check):
    """Free percent and MiB of every GPU."""
    return {
        state.node.name: [
            (state.free_cores(at), state.free_memory(at)) for at in range(len(state.node.gpus))
        ]
        for state in check.snapshot
    }


class Backend:
    """An extender at an address."""

    url = ""

    def ready(self):
        """Whether it is ready."""
        try:
            with urllib.request.urlopen(f"{self.url}/leadz", timeout=2) as response:
                return response.status == 200
        except OSError:
            return False

    def free(self):
        """Free percent and MiB of every GPU, as its ledger has them."""
        with urllib.request.urlopen(f"{self.url}/scheduler/status", timeout=5) as response:
            text = json.load(response)["elasticgpu.io/gpu-core"]
        return {
            name: [(gpu["CoreAvailable"], gpu["MemoryAvailable"]) for gpu in gpus]
            for name, gpus in json.loads(text).items()
        }


class Thread(Backend):
    """The real extender on a thread of this process."""

    def __init__(self, master, *, leads=False):
        self._settings = ExtenderSettings(
            master=master, bind_seconds=1.0, leader_elect=leads, lease_timing=TERM
        )
        found = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(found)))
        self._thread.start()
        self.url = found.result(20)

    async def _serve(self, found):
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        await run_extender(self._settings, self._ended, started=found.set_result)

    def stop(self):
        """Finish what was begun, give the lease up and end."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()


class Process(Backend):
    """The real extender as a process that can be killed."""

    def __init__(self, master):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        code = "from slicewise.cli.main import main; main()"
        self._command = [sys.executable, "-c", code, "extender", f"--address=127.0.0.1:{port}"]
        self._command += [f"--master={master}", "--log-level=error", "--no-leader-elect"]
        self._process = None
        self.start()

    def start(self):
        """Start it, or start it again."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)

    def kill(self):
        """End it at once, in the middle of whatever it does."""
        self._process.kill()
        self._process.wait()

    def stop(self):
        """End it."""
        self.kill()
