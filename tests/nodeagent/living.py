"""An agent in this process, between an embedded API and a kubelet without containers."""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import builders
from fakes import signing
from fakes.kubelet import FakeKubelet
from slicewise.dialects import ALLOCATION, DEFAULT
from slicewise.dialects.shared.injection import GpuManagerPaths
from slicewise.kube.client import Client
from slicewise.kube.credentials import Access
from slicewise.kubelet.holders import PodResourcesClient
from slicewise.model import NOT_ISOLATED, Allocation, Container, ContainerAllocation, Pod, cut
from slicewise.nodeagent.agent import Agent, AgentEdges
from slicewise.nodeagent.gpus.gpu_watch import GpuInventory
from slicewise.nodeagent.settings import AgentSettings, IdentityMode, Paths
from slicewise.nvml.driver import GpuDevice, Hardware
from slicewise_playground.cluster import Playground

NODE = "n0"
CONTROLS = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


def build_gpus(count: int, memory: int = 2048) -> tuple:
    """GPUs whose minor numbers run against their indexes."""
    return tuple(
        builders.gpu(at, "NVIDIA A10", memory, uuid=f"GPU-{at}", minor=count - 1 - at)
        for at in range(count)
    )


def hardware(gpus) -> Hardware:
    devices = tuple(GpuDevice(gpu, f"0000:0{gpu.index}:00.0") for gpu in gpus)
    return Hardware(devices, None, "550.54", "")


class Scene:
    """One node: its API, its kubelet, its folders, and its agent while `running`."""

    def __init__(self, root: Path, gpus: int = 4, memory: int = 2048, **facts) -> None:
        self.root = root
        offered = facts.pop("offered", NOT_ISOLATED)
        self.gpus = tuple(replace(gpu, isolation=offered) for gpu in build_gpus(gpus, memory))
        self.limits = facts.pop("limits", None)
        self.node = builders.node(NODE, self.gpus)
        self.playground = Playground()
        self.kubelet = FakeKubelet(root / "kubelet", seed=facts.pop("seed", 0))
        self.dev, self.cdi = root / "dev", root / "cdi"
        self.turns = facts.pop("turns", None)
        self.registry = facts.pop("registry", None)
        self.trust = facts.pop("trust", None) or signing.trust()
        self.agent: Agent | None = None
        self.dev.mkdir()
        for name in (*CONTROLS, *(f"nvidia{gpu.minor}" for gpu in self.gpus)):
            (self.dev / name).touch()
        paths = Paths(
            plugins=self.kubelet.plugins,
            pod_resources=self.kubelet.pod_resources,
            cdi=self.cdi,
            vendor_cdi=(root / "vendor",),
            dev=self.dev,
            state=root / "state",
        )
        self.settings = replace(
            AgentSettings(
                node=NODE,
                identity=IdentityMode.CDI,
                paths=paths,
                places=GpuManagerPaths(str(root / "vm"), str(root / "vdriver")),
                record_seconds=0.3,
                watch_seconds=2.0,
                sweep_seconds=0.05,
            ),
            **facts,
        )
        self._numbers = 0

    async def __aenter__(self):
        self.playground.start()
        self.playground.create("nodes", {"metadata": {"name": NODE}})
        await self.kubelet.start()
        return self

    async def __aexit__(self, *_):
        await self.kubelet.stop()
        self.playground.stop()

    @contextlib.asynccontextmanager
    async def running(self):
        """An agent that the kubelet knows."""
        async with Client(Access(self.playground.url)) as client:
            holders = PodResourcesClient(self.settings.paths.pod_resources)
            inventory = GpuInventory(NODE, hardware(self.gpus))
            edges = AgentEdges(
                client, holders, self.turns, "containerd 2.3.4", self.trust, self.limits
            )
            self.agent = Agent(self.settings, inventory, edges, self.registry)
            self.agent.registrar._every = 0.02
            work = asyncio.create_task(self.agent.run())
            try:
                await self.until(lambda: work.done() or self.agent.ready)
                await self.kubelet.until_known(
                    *(each.offer.resource for each in self.agent.plugins)
                )
                yield self.agent
            finally:
                work.cancel()
                results = await asyncio.gather(work, return_exceptions=True)
                await holders.close()
        assert isinstance(results[0], asyncio.CancelledError), results

    async def until(self, reached, seconds: float = 20) -> None:
        """Return once this is so."""
        async with asyncio.timeout(seconds):
            while not reached():
                await asyncio.sleep(0.01)

    def allocate(self, pod: Pod, *indexes: tuple[int, ...]) -> Pod:
        """The pod with the record that gives its GPU containers these GPUs, in their order."""
        request = DEFAULT.read_request(pod)
        given = tuple(
            ContainerAllocation(
                each.name,
                tuple(
                    cut(share, self.gpus[at]) for share, at in zip(each.shares, chosen, strict=True)
                ),
            )
            for each, chosen in zip(request.containers, indexes, strict=True)
        )
        allocation = Allocation(NODE, given)
        record = DEFAULT.record_allocation(pod, request, allocation, self.node, now_ns=1)
        self._numbers += 1
        allocation = DEFAULT.add_terms(pod, request, allocation, self.node)
        text = signing.write_record(allocation, self.node, now_ns=self._numbers)
        marks = {**pod.annotations, **record.annotations, ALLOCATION: text}
        return replace(pod, annotations=marks, labels=dict(record.labels))

    def bind(self, pod: Pod, *, signed: bool = True) -> Pod:
        """The pod as the API has it, bound to the node, its record signed if it has one."""
        early = [each for each in pod.containers if each.role is not builders.Role.MAIN]
        body = {
            "metadata": {
                "name": pod.name,
                "namespace": pod.namespace,
                "annotations": dict(pod.annotations),
                "labels": dict(pod.labels),
            },
            "spec": {
                "initContainers": [_write(each) for each in early],
                "containers": [_write(each) for each in pod.main_containers],
            },
        }
        uid = self.playground.create("pods", body)["metadata"]["uid"]
        text = pod.annotations.get(ALLOCATION)
        marks = {} if text is None or not signed else signing.sign(uid, text)
        self.playground.bind(pod.name, NODE, pod.namespace, annotations=dict(marks))
        return replace(pod, uid=uid, node=NODE, annotations={**pod.annotations, **marks})

    def place(self, limits, *indexes, name=None, containers=None, signed=True) -> Pod:
        """A bound pod of one container for each group of GPUs."""
        self._numbers += 1
        named = containers or [f"c{at}" for at in range(len(indexes))]
        each = [Container(one, limits=limits) for one in named]
        pod = builders.pod(*each, name=name or f"p{self._numbers}")
        return self.bind(self.allocate(pod, *indexes), signed=signed)

    def place_bare(self, limits) -> Pod:
        """A bound pod that nobody has recorded anything on."""
        self._numbers += 1
        return self.bind(builders.pod(limits=limits, name=f"p{self._numbers}"))

    def record(self, pod: Pod, *indexes) -> None:
        """The record of these GPUs is written on a bound pod."""
        marked = self.allocate(pod, *indexes)
        marks = {**marked.annotations, **signing.sign(pod.uid, marked.annotations[ALLOCATION])}
        self.annotate(pod, marks)

    def annotate(self, pod: Pod, marks: Mapping[str, str | None]) -> None:
        """A tenant edits the annotations of a pod."""
        self.playground.patch("pods", pod.name, {"metadata": {"annotations": dict(marks)}})

    async def start(self, pod: Pod, container: str = "c0"):
        """The container's answers and the edits that the runtime would find for it."""
        held = await self.kubelet.start_container(pod, container)
        return self.edits(held)

    def edits(self, held) -> dict:
        """The edits of every CDI device a container was given, joined as a runtime joins them."""
        joined = {"env": {}, "devices": {}, "mounts": {}, "hooks": []}
        for answer in held.answers.values():
            joined["env"].update(answer.envs)
            for device in answer.cdi_devices:
                name = device.name.removeprefix("slicewise.io/share=")
                spec = json.loads((self.cdi / f"slicewise-{name}.json").read_text())
                (entry,) = spec["devices"]
                assert entry["name"] == name
                edits = entry["containerEdits"]
                assert edits
                joined["env"].update(each.split("=", 1) for each in edits.get("env", ()))
                for node in edits.get("deviceNodes", ()):
                    joined["devices"][node["path"]] = node.get("hostPath", node["path"])
                for mount in edits.get("mounts", ()):
                    joined["mounts"][mount["containerPath"]] = mount["hostPath"]
                joined["hooks"] += edits.get("hooks", ())
        return joined

    def get(self, pod: Pod) -> dict:
        return self.playground.get("pods", pod.name)

    def delete(self, pod: Pod) -> None:
        self.playground.delete("pods", pod.name, grace=0)
        self.kubelet.remove(pod)


def gpu_paths(edits: dict) -> set[str]:
    """The GPUs among the device nodes under /dev."""
    names = {path.removeprefix("/dev/") for path in edits["devices"] if path.startswith("/dev/")}
    return {name for name in names if name.removeprefix("nvidia").isdecimal()}


def live(root: Path, act, **facts):
    """What the act returns, given a running scene."""

    async def scene():
        async with asyncio.timeout(60), Scene(root, **facts) as made:
            return await act(made)

    return asyncio.run(scene())


def _write(container: Container) -> dict:
    body = {
        "name": container.name,
        "image": "x",
        "resources": {"limits": {key: str(value) for key, value in container.limits.items()}},
    }
    if container.role is builders.Role.SIDECAR:
        body["restartPolicy"] = "Always"
    return body
