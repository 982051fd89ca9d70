"""The dearest decision that a pod can ask for, on 5,000 nodes of eight GPUs.

A seeded generator draws pods that are made to be hard: many containers, shares that fit only
together or not at all, long lists, far-fetched policies, strict wishes, init containers and
sidecars. Each goes through the real handlers of every verb. Processor time is counted of the whole
process, and of every single turn of the event loop.
"""

import asyncio
import gc
import json
from asyncio import events
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from random import Random
from time import process_time, thread_time
from typing import Any, Final

from bench.cluster import GPUS, HalfFull, half_full
from bench.extender import CountingWriter, log_to
from slicewise.cluster import NodeSeen, PodGone
from slicewise.dialects.shared.routes import RouteOptions
from slicewise.extender.handlers import Extender
from slicewise.extender.protocol import decode_pod
from slicewise.httpd import Answer
from slicewise.model import Links, Pod
from slicewise.placement import POLICIES, PodShape, Workload, prepare_prices
from slicewise.state.live import LiveState
from slicewise.state.settings import StateSettings

_SEED: Final = 11
_NODES: Final = 5000
_PODS: Final = 60
_TERMS: Final = ("binpack", "spread", "best-fit", "random", "load", "fgd", "price")
_NODE_TERMS: Final = (*_TERMS, "dot-product", "packing", "clustering")
_HOLDS: Final = RouteOptions(holds=True)
_COMMITS: Final = RouteOptions(commits=True)


class _PodWriter(CountingWriter):
    """Shows the pod that is being bound."""

    pod: Pod | None = None

    async def read_pod(self, namespace: str, name: str) -> Pod | None:  # noqa: ARG002
        """The pod of this moment."""
        return self.pod


class PodGenerator:
    """Draws pods that are meant to be hard to decide on."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self._count = 0

    def draw(self) -> dict[str, Any]:
        """One pod as the API server shows it."""
        chance = self._chance
        self._count += 1
        number = chance.choice((1, 2, 3, 5, 9, 16, 24, 32))
        containers = [self._container(at, number) for at in range(number)]
        early = chance.choice((0, 0, number // 2))
        wishes = dict(pair for pair in self._wishes() if chance.random() < 0.35)
        return {
            "metadata": {
                "name": f"pod-{self._count}",
                "namespace": "spite",
                "uid": f"spite-{self._count}",
                "annotations": {**wishes, "slicewise.io/unknown": "x" * 200_000},
            },
            "spec": {
                "priority": 1000,
                "initContainers": containers[:early],
                "containers": containers[early:],
            },
        }

    def _container(self, at: int, number: int) -> dict[str, Any]:
        chance = self._chance
        limits: dict[str, int] = {"cpu": chance.randrange(1, 4)}
        match chance.randrange(4):
            case 0:
                limits["slicewise.io/gpu"] = chance.choice((1, 1, 1, 2, 4))
            case 1:
                limits |= {"slicewise.io/cores": 800 // number // 2 + chance.randrange(9) + 1}
            case 2:
                limits |= {"slicewise.io/cores": chance.choice((26, 34, 51, 99))}
                limits |= {"slicewise.io/memory": chance.randrange(1, 20_000)}
            case _:
                limits |= {"slicewise.io/memory": chance.randrange(1, 40_000)}
        if "slicewise.io/cores" in limits:
            limits["slicewise.io/cores"] = min(99, limits["slicewise.io/cores"])
        container: dict[str, Any] = {"name": f"c{at}", "resources": {"limits": limits}}
        if chance.random() < 0.3:
            container["restartPolicy"] = "Always"
        return container

    def _wishes(self) -> Iterator[tuple[str, str]]:
        chance = self._chance
        node = ",".join(f"{term}:{1 + chance.randrange(9)}" for term in _NODE_TERMS)
        gpu = ",".join(chance.sample(_TERMS, 7))
        policies = (f"node={node} gpu={gpu}", "fgd", "clustering", "spread", *POLICIES)
        yield "slicewise.io/policy", chance.choice(policies)
        yield "slicewise.io/models", ",".join(f"a{at}00" for at in range(chance.randrange(1, 64)))
        yield (
            "slicewise.io/uuids-refused",
            ",".join(f"node-{chance.randrange(_NODES):05}-{at % GPUS}" for at in range(63)),
        )
        yield "slicewise.io/topology", chance.choice(("required:nvlink", "numa", "required:numa"))


def measure_worst() -> Iterator[tuple[str, float]]:
    """The most processor time of one decision, and of one turn of the loop."""
    with open("/dev/null", "w") as nowhere:
        log_to(nowhere)
        worst, held = asyncio.run(_measure())
    yield "cpu_ms", 1e3 * worst
    yield "loop_ms", 1e3 * held


async def _measure() -> tuple[float, float]:
    cluster = half_full(_NODES)
    _link(cluster)
    state = LiveState(_ABSENT, StateSettings(quota=None, trust=None))
    state.ledger = cluster.ledger
    state.synced.set()
    extender = Extender(state, _PodWriter())
    await _warm_up(extender, cluster)
    meter = _LoopMeter()
    worst = 0.0
    generator = PodGenerator(_SEED)
    for _ in range(_PODS):
        pod = generator.draw()
        for verb in _decide(extender, cluster, pod):
            # What was spent on drawing the pod ends with this turn of the loop.
            await asyncio.sleep(0)
            with meter:
                began = process_time()
                await asyncio.create_task(_run(verb))
                worst = max(worst, process_time() - began)
            cluster.ledger.apply(PodGone(pod["metadata"]["uid"]))
            await asyncio.sleep(0)
    return worst, meter.most


_ABSENT: Final[Any] = None


async def _run(verb: Awaitable[Answer]) -> None:
    await verb


def _decide(
    extender: Extender, cluster: HalfFull, pod: dict[str, Any]
) -> Iterator[Awaitable[Answer]]:
    names = [node.name for node in cluster.nodes]
    body = json.dumps({"Pod": pod, "NodeNames": names}).encode()
    held = cluster.ledger.snapshot()
    offered = {
        state.node.name: {"Pods": [{"UID": each.uid} for each in state.holdings]} for state in held
    }
    victims = json.dumps({"Pod": pod, "NodeNameToMetaVictims": offered}).encode()
    what_if = json.dumps({"Pods": [{"Pod": pod}]}).encode()
    writer = extender.binder.writer
    assert isinstance(writer, _PodWriter)
    writer.pod = decode_pod(json.dumps(pod).encode())
    yield extender.filter(body)
    yield extender.filter(body, _HOLDS)
    yield extender.filter(body, _COMMITS)
    yield extender.prioritize(body)
    yield extender.preempt(victims)
    yield extender.explain(body, {})
    yield extender.what_if(what_if)
    about = {"PodName": writer.pod.name, "PodNamespace": "spite", "PodUID": writer.pod.uid}
    yield extender.bind(json.dumps({**about, "Node": names[17]}).encode())


def _link(cluster: HalfFull) -> None:
    """Let GPUs of every other node be joined in two halves, and every third by switches."""
    half = GPUS // 2
    lanes = tuple(
        tuple(2 if one // half == other // half and one != other else 0 for other in range(GPUS))
        for one in range(GPUS)
    )
    pcie = tuple(
        tuple(10 if one // 2 == other // 2 else 50 for other in range(GPUS)) for one in range(GPUS)
    )
    for at, node in enumerate(cluster.nodes):
        if at % 2:
            links = Links(lanes if at % 3 else ((0,) * GPUS,) * GPUS, pcie)
            cluster.ledger.apply(NodeSeen(replace(node, links=links)))


async def _warm_up(extender: Extender, cluster: HalfFull) -> None:
    """Learn from pods of a thousand shapes, and build the tables, as a leader does at its start."""
    chance = Random(_SEED)
    odd = {
        PodShape(chance.randrange(9000), chance.randrange(1, 99), 1, chance.randrange(40_000)): 1
        for _ in range(1000)
    }
    workload = Workload({**cluster.workload.counts, **odd})
    state = extender.state
    assert isinstance(state, LiveState)
    state.workload_stats.workload = workload
    planner = state.planner()
    planner.warm_up(state.snapshot())
    prepare_prices(workload, planner.tables.sizes)
    await state.renew_workload()
    shares = {"slicewise.io/cores": 5, "slicewise.io/memory": 64}
    pod = {
        "metadata": {"name": "first", "namespace": "spite", "uid": "first"},
        "spec": {"containers": [{"name": "c0", "resources": {"limits": shares}}]},
    }
    for verb in _decide(extender, cluster, pod):
        await verb
    cluster.ledger.apply(PodGone("first"))
    gc.collect()
    gc.freeze()


class _LoopMeter:
    """The most processor time that one turn of the loop took while it measured."""

    def __init__(self) -> None:
        self.most = 0.0
        self._original: Any = events.Handle._run

    def __enter__(self) -> None:
        def run(handle: events.Handle) -> None:
            began = thread_time()
            self._original(handle)
            self.most = max(self.most, thread_time() - began)

        setattr(events.Handle, "_run", run)  # noqa: B010

    def __exit__(self, *_: object) -> None:
        setattr(events.Handle, "_run", self._original)  # noqa: B010
