"""What `why` and `what-if` foretell is what filter, prioritize and bind then do."""

import asyncio
import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
from extender import bodies
from fakes.cluster import FakeState, FakeWriter
from slicewise.cluster import NodeSeen, PodGone
from slicewise.dialects import DEFAULT
from slicewise.extender.handlers import Extender
from slicewise.extender.protocol import decode_pod
from slicewise.extender.routes import build_handler
from slicewise.httpd import HttpRequest
from slicewise.model import FULL

policies = st.sampled_from(["default", "binpack", "spread", "best-fit"])


class Played:
    """An extender over a random cluster, and a scheduler that does as it is told."""

    def __init__(self, nodes, policy):
        self.nodes = {node.name: node for node in nodes}
        self.state, self.writer = FakeState(*nodes, policy=policy), FakeWriter()
        self.handler = build_handler(Extender(self.state, self.writer))

    async def post(self, path, body):
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await self.handler(HttpRequest("POST", path, {}, {}, text, asyncio.Event().wait))
        return json.loads(answer.body)

    async def foretell(self, *pods):
        answer = await self.post("/what-if", {"Pods": [{"Pod": pod} for pod in pods]})
        return answer["pods"]

    async def filter(self, pod, names=None, route="/filter"):
        reply = await self.post(route, bodies.args(pod, names or list(self.nodes)))
        assert reply["Error"] == "", reply
        return reply["NodeNames"]

    async def schedule(self, pod, route="/filter"):
        """The node and GPUs the pod is given; None when every node refuses it."""
        read = decode_pod(json.dumps(pod).encode())
        self.writer.add(read)
        self.state.see(read)
        fitting = await self.filter(pod, route=route)
        if not fitting:
            return None
        scores = await self.post("/prioritize", bodies.args(pod, fitting))
        best = max(scores, key=lambda each: each["Score"])["Host"]
        bound = await self.post("/bind", bodies.binding(best, read.name, read.uid))
        assert bound == {"Error": ""}
        return best, self._gpus(self.writer.pods[read.namespace, read.name])

    def _gpus(self, pod):
        allocation = DEFAULT.read_allocation(pod, self.nodes[pod.node])
        return {each.name: [piece.gpu for piece in each.slices] for each in allocation.containers}


def name_all(pods):
    return [
        {**pod, "metadata": {**pod["metadata"], "name": f"p{at}", "uid": f"u{at}"}}
        for at, pod in enumerate(pods)
    ]


@settings(max_examples=150)
@given(
    strategies.clusters(),
    policies,
    st.lists(strategies.gpu_pods(), min_size=1, max_size=6),
    st.sampled_from(["/filter", "/place"]),
)
def test_pods_go_where_what_if_foretold_when_nothing_else_changes(nodes, policy, pods, route):
    async def play():
        played = Played(nodes, policy)
        pods_in_order = name_all(pods)
        before = played.state.snapshot()
        foretold = await played.foretell(*pods_in_order)

        assert played.state.snapshot() is before, "what-if must not touch the live ledger"
        assert played.state.ledger.pods == 0
        for pod, told in zip(pods_in_order, foretold, strict=True):
            given = await played.schedule(pod, route)
            assert given == ((told["node"], told["gpus"]) if told["fits"] else None)

    asyncio.run(play())


@settings(max_examples=150)
@given(strategies.clusters(), policies, st.lists(strategies.gpu_pods(), min_size=1, max_size=6))
def test_why_names_the_place_that_the_pod_is_then_given(nodes, policy, pods):
    async def play():
        played = Played(nodes, policy)
        for pod in name_all(pods):
            told = await played.post("/explain", bodies.args(pod, list(played.nodes)))
            given = await played.schedule(pod)
            if given is None:
                assert "best" not in told
                assert not any(node["fits"] for node in told["nodes"])
            else:
                assert told["best"]["node"] == given[0]

    asyncio.run(play())


def change_pod(pod, change):
    """The pod with the change made, in Slicewise's own words, which can say every request."""
    request = DEFAULT.read_request(decode_pod(json.dumps(pod).encode()))
    asked, dropped = change.get("ask", {}), change.get("drop", ())
    annotations = {"slicewise.io/together": str(request.constraints.together).lower()}
    containers = []
    for each in request.containers:
        shares = [
            (min(share.cores, asked.get("cores", 100)), min(share.memory, asked["memory"]))
            if "memory" in asked
            else (min(share.cores, asked.get("cores", 100)), share.memory)
            for share in each.shares[: asked.get("gpus", 64)]
        ]
        annotations[f"slicewise.io/shares.{each.name}"] = ",".join(
            "whole" if cores == FULL else f"{cores}%:{memory}" for cores, memory in shares
        )
        limits = {"slicewise.io/gpu": len(shares)}
        containers.append({"name": each.name, "resources": {"limits": limits}})
    wishes = request.constraints
    if wishes.models and "models" not in dropped:
        annotations["slicewise.io/models"] = ",".join(wishes.models)
    if wishes.topology is not None:
        strict = wishes.topology.strict and "topology" not in dropped
        word = wishes.topology.nearness.name.lower()
        annotations["slicewise.io/topology"] = f"{'required' if strict else 'preferred'}:{word}"
    meta = {"name": "changed", "namespace": "default", "uid": "changed", "annotations": annotations}
    return {"metadata": meta, "spec": {"containers": containers}}


def respell_pod(pod, limits):
    """The pod with these limits in the place of its own, as a person would write them."""
    [container] = pod["spec"]["containers"]
    asked = {**container["resources"]["limits"], **limits}
    meta = {**pod["metadata"], "name": "respelt", "uid": "respelt"}
    resources = {"limits": asked}
    return {
        **pod,
        "metadata": meta,
        "spec": {"containers": [{**container, "resources": resources}]},
    }


def change_cluster(played, node, change):
    """The cluster with the change made: pods gone, GPUs opened."""
    for name in change.get("evict", ()):
        pod = played.writer.pods[tuple(name.split("/"))]
        played.state.ledger.apply(PodGone(pod.uid))
    if "uncordon" in change:
        gpus = tuple(replace(gpu, cordoned=False) for gpu in played.nodes[node].gpus)
        played.state.ledger.apply(NodeSeen(replace(played.nodes[node], gpus=gpus), 1))


@settings(max_examples=200)
@given(strategies.clusters(), policies, st.lists(strategies.gpu_pods(), min_size=2, max_size=8))
def test_smallest_change_once_made_lets_the_pod_fit(nodes, policy, pods):
    async def play():
        played = Played(nodes, policy)
        for pod in name_all(pods):
            [told] = await played.foretell(pod)
            if told["fits"]:
                await played.schedule(pod)
                continue
            assert await played.filter(pod) == []
            change = told.get("smallestChange")
            if change is None:
                continue
            if "limits" in change:
                respelt = respell_pod(pod, change["limits"])
                assert await played.filter(respelt, [change["node"]]) == [change["node"]], change
            change_cluster(played, change["node"], change)
            assert await played.filter(change_pod(pod, change), [change["node"]]) == [
                change["node"]
            ], change
            return

    asyncio.run(play())
