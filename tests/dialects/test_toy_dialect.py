"""A dialect is one package: the toy system is carried through every service by its one line."""

import asyncio
import contextlib
import http.client
import json
from dataclasses import replace

import pytest

import builders
from extender import bodies
from nodeagent.living import NODE, Scene
from slicewise.dialects import DEFAULT, Dialect, Dialects
from slicewise.dialects.shared.publication import NodeFacts
from slicewise.explain.gpushare_inspect import read_nodes
from slicewise.extender.run import ExtenderSettings, run_extender
from slicewise.httpd import ServerSettings
from slicewise.kube.node_details import NodeDetails
from slicewise.model import Container, DialectError, NodeNotice
from slicewise.state.trust import TRUST_CONFIGMAP
from slicewise.trust import read_trust
from toy import AGENT, PODS, SCHEDULER, TOY
from toy import NODE as TOY_NODE
from toy.agent import STARTED
from toy.node import INVENTORY
from toy.pods import GPUS_OF, SLICES

ALL = Dialects((*DEFAULT.dialects, TOY))


class ToyCluster(Scene):
    """One node whose inventory is written as the toy's own agent writes it, and an extender."""

    def __init__(self, root):
        super().__init__(root, gpus=2, dialects=("toy",), registry=ALL)

    @contextlib.asynccontextmanager
    async def extending(self):
        published = TOY.node.publish(NodeFacts(self.node), frozenset(("toy",)))
        meta = {"annotations": dict(published.annotations)}
        self.playground.patch("nodes", NODE, {"metadata": meta}, namespace="")
        url, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
        settings = ExtenderSettings(
            master=self.playground.url, listen=ServerSettings(port=0), bind_seconds=1.0
        )
        serving = run_extender(settings, stop, started=url.set_result, dialects=ALL)
        task = asyncio.create_task(serving)
        try:
            self.address = (await url).removeprefix("http://")
            while (await self.ask("/leadz"))[0] != 200:
                await asyncio.sleep(0.02)
            namespace, name = TRUST_CONFIGMAP
            published = self.playground.get("configmaps", name, namespace)
            self.trust.take(read_trust(published["data"]))
            yield self
        finally:
            stop.set()
            await task

    async def ask(self, path, body=None):
        """The extender's answer, asked from a thread beside the loop that serves it."""

        def call():
            with contextlib.closing(http.client.HTTPConnection(self.address, timeout=20)) as line:
                headers = {"Content-Type": "application/json"}
                line.request("GET" if body is None else "POST", path, body, headers)
                response = line.getresponse()
                return response.status, response.read()

        return await asyncio.to_thread(call)

    async def tell(self, path, body=None):
        status, text = await self.ask(path, body)
        assert status == 200, text
        return json.loads(text)

    def add(self, name, slices):
        container = {"name": "c0", "image": "x", "resources": {"limits": {SLICES: str(slices)}}}
        body = {"metadata": {"name": name}, "spec": {"containers": [container]}}
        return self.playground.create("pods", body)

    async def schedule(self, pod):
        """Filter and bind by the toy's own routes; the pod as the API has it then."""
        reply = await self.tell("/toy/filter", bodies.args(pod, [NODE]))
        assert reply["NodeNames"] == [NODE], reply
        meta = pod["metadata"]
        binding = bodies.binding(NODE, meta["name"], meta["uid"])
        assert await self.tell("/toy/bind", binding) == {"Error": ""}
        bound = self.playground.get("pods", meta["name"])
        limits = bound["spec"]["containers"][0]["resources"]["limits"]
        return replace(
            builders.pod(Container("c0", limits=limits), name=meta["name"]),
            uid=meta["uid"],
            node=bound["spec"]["nodeName"],
            annotations=bound["metadata"]["annotations"],
        )


def carry(root, act):
    """What the act returns in a toy cluster with an agent and an extender."""

    async def run():
        async with (
            asyncio.timeout(60),
            ToyCluster(root) as scene,
            scene.extending(),
            scene.running(),
        ):
            return await act(scene)

    return asyncio.run(run())


def test_toy_pod_is_filtered_bound_and_started_with_the_gpus_of_its_record(tmp_path):
    async def act(scene):
        pods = [await scene.schedule(scene.add(f"p{at}", 3)) for at in range(2)]
        edits = []
        for pod in pods:
            await scene.kubelet.admit(pod)
            edits.append(await scene.start(pod))
        flags = [lambda pod=pod: scene.get(pod)["metadata"]["annotations"] for pod in pods]
        await scene.until(lambda: all(each().get(STARTED) == "true" for each in flags))
        return pods, edits

    pods, edits = carry(tmp_path, act)

    indexes = [pod.annotations[GPUS_OF + "c0"] for pod in pods]
    assert sorted(indexes) == ["0", "1"]
    assert [each["env"]["NVIDIA_VISIBLE_DEVICES"] for each in edits] == [
        f"GPU-{index}" for index in indexes
    ]
    assert [each["env"]["TOY_SLICES"] for each in edits] == ["3", "3"]


def test_toy_pod_is_explained_in_its_own_words_and_inspected(tmp_path):
    async def act(scene):
        for at in range(2):
            await scene.schedule(scene.add(f"p{at}", 3))
        waiting = scene.add("p2", 2)
        reply = await scene.tell("/toy/filter", bodies.args(waiting, [NODE]))
        why = await scene.tell("/explain?pod=default/p2")
        placed = await scene.tell("/explain?pod=default/p0")
        pages = [
            await scene.tell(path)
            for path in ("/toy/inspect", f"/toy/inspect/{NODE}", "/gpushare-scheduler/inspect")
        ]
        return reply, why, placed, pages

    reply, why, placed, (every, one, gpushare) = carry(tmp_path, act)

    assert not reply["NodeNames"]
    assert why["smallestChange"]["limits"] == {SLICES: 1}
    assert placed["node"] == NODE
    assert placed["holds"]
    assert sorted(every[NODE]) == ["default/p0", "default/p1"]
    assert one == every
    (node,) = gpushare["nodes"]
    assert sorted(pod["name"] for gpu in node["devs"] for pod in gpu["pods"]) == ["p0", "p1"]


def test_toy_pod_is_listed_by_kubectl_inspect_gpushare():
    amounts = {"aliyun.com/gpu-mem": 4, "aliyun.com/gpu-count": 2}
    annotations = {INVENTORY: "GPU-0:2048,GPU-1:2048"}
    notice = NodeNotice("n0", annotations=annotations, capacity=amounts, allocatable=amounts)
    pod = replace(builders.pod(limits={SLICES: 2}, annotations={GPUS_OF + "c0": "1"}), node="n0")

    (node,) = read_nodes([NodeDetails(notice, {})], [pod], ALL)

    assert [(each.system, each.amounts) for each in node.pods] == [("toy", {1: 1})]


def test_toy_agent_publishes_what_the_toy_reads():
    node = builders.node("n0", 2)

    published = ALL.publish(NodeFacts(node), ["toy"])
    read = TOY.node.read_node(NodeNotice("n0", annotations=published.annotations))

    assert [(gpu.uuid, gpu.memory) for gpu in read.gpus] == [
        (gpu.uuid, gpu.memory) for gpu in node.gpus
    ]


PARTS = {
    "keys": TOY.keys,
    "pods": PODS,
    "node": TOY_NODE,
    "agent": AGENT,
    "scheduler": SCHEDULER,
}


@pytest.mark.parametrize("part", PARTS)
def test_forgotten_part_is_named_with_its_dialect(part):
    others = {name: each for name, each in PARTS.items() if name != part}

    with pytest.raises(DialectError, match=f"dialect toy: {part} is missing"):
        Dialect(name="toy", **others)


def test_forgotten_member_of_a_part_is_named_with_its_dialect():
    class Half:
        resources = frozenset((SLICES,))

    with pytest.raises(DialectError, match=r"dialect toy: pods has no .*write_limits"):
        Dialect(name="toy", **{**PARTS, "pods": Half()})


def test_route_of_another_dialect_that_means_something_else_is_refused():
    own = next(route for route in ALL.routes.values() if route.path == "/bind")
    taken = replace(SCHEDULER, routes=(replace(own, path="/filter"),))

    with pytest.raises(DialectError, match="dialect toy: /filter is another's route"):
        Dialects((*DEFAULT.dialects, replace(TOY, scheduler=taken)))
