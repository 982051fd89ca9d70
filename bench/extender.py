"""How long the scheduler waits for the extender: across real HTTP, from another process."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from time import thread_time_ns
from typing import Final, TextIO

import numpy as np
import structlog

from bench.cluster import HalfFull, half_full
from bench.scheduler import NODES
from slicewise.cluster import Ledger, PodGone, Problem, Quota
from slicewise.extender.handlers import Extender
from slicewise.extender.protocol import decode_binding
from slicewise.extender.server import ExtenderServer
from slicewise.kube.outcomes import BindOutcome, PodEvent, PodKey, WriteOutcome, WriteStatus
from slicewise.kube.watch import WatchMonitor
from slicewise.model import NO_RULES, Container, IsolationRules, Pod, PodRecord, Snapshot
from slicewise.placement import POLICIES, Planner
from slicewise.trust import RecordSigner, SigningKey

# Between two events of a busy cluster.
_PAUSE: Final = 0.002


class StillState:
    """A half-full cluster that nobody watches."""

    def __init__(self, cluster: HalfFull) -> None:
        self.ledger: Ledger = cluster.ledger
        self.quota = Quota()
        self.ready = True
        self.unready: str | None = None
        self.unsynced: str | None = None
        self.failure: str | None = None
        self.watches = WatchMonitor()
        self._planner = Planner(POLICIES["default"], cluster.workload)
        self.served_names: frozenset[str] = frozenset()

    def isolation_rules(self, namespace: str) -> IsolationRules:  # noqa: ARG002
        """No namespace demands anything."""
        return NO_RULES

    def snapshot(self) -> Snapshot:
        """The cluster now."""
        return self.ledger.snapshot()

    def problems(self) -> tuple[Problem, ...]:
        """Everything that needs a person."""
        return self.ledger.problems()

    def planner(self, policy: str | None = None) -> Planner:  # noqa: ARG002
        """The default policy, whatever is asked for."""
        return self._planner


class CountingWriter:
    """Takes every write and counts it; events are not counted."""

    def __init__(self) -> None:
        self.writes = 0

    async def bind(self, pod: PodKey, node: str, record: PodRecord) -> BindOutcome:  # noqa: ARG002
        """Done."""
        return self._count()

    async def settle_bind(
        self,
        pod: PodKey,  # noqa: ARG002
        node: str,  # noqa: ARG002
        record: PodRecord,  # noqa: ARG002
        *,
        seconds: float,  # noqa: ARG002
    ) -> BindOutcome:
        """Never lost."""
        return WriteOutcome(WriteStatus.DONE)

    async def annotate_pod(
        self,
        pod: PodKey,  # noqa: ARG002
        record: PodRecord,  # noqa: ARG002
        *,
        version: int | None = None,  # noqa: ARG002
    ) -> WriteOutcome:
        """Done."""
        return self._count()

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """A pod that asks for a small share."""
        limits = {"slicewise.io/cores": 5, "slicewise.io/memory": 64}
        return Pod(f"uid-{name}", namespace, name, (Container("main", limits),))

    def post_event(self, pod: PodKey, event: PodEvent) -> None:
        """Not counted."""

    def _count(self) -> WriteOutcome:
        self.writes += 1
        return WriteOutcome(WriteStatus.DONE)


@lru_cache(maxsize=1)
def _cluster() -> HalfFull:
    return half_full(NODES)


def measure_filter(form: str, count: int, warm: int) -> Iterator[tuple[str, float]]:
    """Filter by names, or with whole Node objects, while pods end elsewhere in the cluster."""
    with open("/dev/null", "w") as nowhere:
        log_to(nowhere)
        seconds, size = asyncio.run(_ask(form, count))
    yield "p50_ms", 1e3 * float(np.percentile(seconds[warm:], 50))
    yield "p99_ms", 1e3 * float(np.percentile(seconds[warm:], 99))
    yield "body_mb", size / 1e6


def measure_writes(count: int = 500) -> Iterator[tuple[str, float]]:
    """Writes to the API server for each pod bound, events aside."""
    writer = CountingWriter()
    extender = open_extender(writer)
    key = SigningKey(bytes(32))
    extender.binder.signer = RecordSigner(lambda: key, lambda: 1)
    bound = asyncio.run(bind_pods(extender, count))
    yield "count", writer.writes / bound
    yield "bound", float(bound)


def open_extender(writer: CountingWriter | None = None) -> Extender:
    """An extender over the half-full cluster whose writes all succeed at once."""
    return Extender(StillState(_cluster()), writer or CountingWriter())


async def bind_pods(
    extender: Extender,
    count: int,
    tell: Callable[[float], None] = lambda _: None,
    *,
    prefix: str = "pod",
) -> int:
    """How many pods were bound; `tell` hears the milliseconds that each took this thread."""
    bound = 0
    for at in range(count):
        name = f"{prefix}-{at}"
        body = {"PodName": name, "PodNamespace": "bench", "PodUID": f"uid-{name}"}
        args = decode_binding(json.dumps({**body, "Node": f"node-{at:05}"}).encode())
        began = thread_time_ns()
        done = await extender.binder.bind(args)
        tell((thread_time_ns() - began) / 1e6)
        bound += not done.error
        extender.state.ledger.apply(PodGone(f"uid-{name}"))
    return bound


async def _ask(form: str, count: int) -> tuple[list[float], int]:
    """Seconds of each answer as a client in a process of its own saw them."""
    cluster = _cluster()
    service = ExtenderServer(Extender(StillState(cluster), CountingWriter()))
    await service.start()
    moving = asyncio.create_task(_end_pods(cluster))
    try:
        client = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.scheduler",
            str(service.server.port),
            form,
            str(count),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await client.communicate()
        answer = json.loads(out)
    finally:
        moving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await moving
        await service.stop()
    return answer["seconds"], answer["bytes"]


async def _end_pods(cluster: HalfFull) -> None:
    while cluster.held:
        await asyncio.sleep(_PAUSE)
        cluster.ledger.apply(PodGone(cluster.held.pop(cluster.chance.randrange(100))))


def log_to(target: TextIO) -> None:
    structlog.configure(
        processors=[structlog.processors.JSONRenderer()],
        logger_factory=structlog.WriteLoggerFactory(target),
    )
