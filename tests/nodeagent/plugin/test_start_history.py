"""Whatever tenants, deletions and restarts do, what really runs never exceeds a GPU."""

import asyncio
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from fakes import signing
from nodeagent import scenes
from slicewise.dialects import DEFAULT
from slicewise.dialects.shared.injection import GpuManagerPaths
from slicewise.dialects.shared.signed_record import SIGNATURE
from slicewise.kube.local_pods import LocalContainer, LocalPod
from slicewise.kube.watch import Gone, Seen
from slicewise.kubelet.errors import DeniedError
from slicewise.model import Allocation, Container, ContainerAllocation, peak
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.allocations import AllocationReader, NodeContext
from slicewise.nodeagent.plugin.grant_book import GrantBook
from slicewise.nodeagent.plugin.start_gate import StartGate

NODE = builders.node("n0", gpus=[builders.gpu(0), builders.gpu(1)])
LIMITS = {"slicewise.io/cores": 10, "slicewise.io/memory": 64}
NAMES = ("c0", "c1")
TRUST = signing.trust()
pieces = st.builds(
    builders.piece,
    st.sampled_from([0, 0, 1]),
    st.sampled_from([60, 60, 0, 100]),
    st.sampled_from([0, 30720]),
)
steps = st.tuples(
    st.sampled_from(
        ["record", "record", *["start"] * 4, "delete", "end", "reap", "strip", "restart"]
    ),
    st.integers(0, 2),
    st.integers(0, 3),
    st.tuples(pieces, pieces),
)


class Node:
    """One node: its agent, its disk, its runtime, and what an honest observer knows to run."""

    def __init__(self):
        self.disk, self.pods, self.real = {}, {}, {}
        self.versions = Counter()
        self.start_agent()

    def start_agent(self):
        book = GrantBook(self.disk.values())
        self.known = NodePods("n0", trust=TRUST, started=book.slices)
        self.known.set_gpus([replace(scenes.device(gpu.index), gpu=gpu) for gpu in NODE.gpus])
        self.known.apply([Seen(pod, new=True) for pod in self.pods.values()])
        context = NodeContext(NODE, GpuManagerPaths(), {})
        self.reader = AllocationReader(
            DEFAULT, self.known, lambda: context, read_pod=None, wait_seconds=0
        )
        synced = asyncio.Event()
        synced.set()
        self.gate = StartGate(self.known, book, lambda: NODE, synced=synced, runtime=self)

    async def running(self, uid):
        return frozenset(self.real.get(uid, ()))

    def record(self, uid, epoch, given):
        """A leader records this; an older epoch is a tenant who puts an old record back."""
        parts = tuple(ContainerAllocation(n, (p,)) for n, p in zip(NAMES, given, strict=True))
        marks = signing.sign(
            uid, signing.write_record(Allocation("n0", parts), NODE, epoch, now_ns=epoch)
        )
        self.show(uid, marks)

    def show(self, uid, marks):
        self.versions[uid] += 1
        containers = tuple(Container(name, limits=LIMITS) for name in NAMES)
        facts = {"annotations": marks, "node": "n0", "version": self.versions[uid]}
        pod = builders.pod(*containers, uid=uid, name=uid, **facts)
        real = self.real.get(uid, {})
        states = tuple(LocalContainer(name, id=name, running=name in real) for name in NAMES)
        self.pods[uid] = LocalPod(pod, states)
        self.known.apply([Seen(self.pods[uid], new=False)])

    async def start(self, uid, name):
        try:
            held = self.reader.read(self.pods[uid])
            if held is None:
                return
            fresh = await self.gate.admit(held, Container(name))
        except DeniedError:
            return
        slices = held.allocation.slices_of(name)
        if fresh:
            self.disk[uid, name] = self.gate.book.find(uid, name)
        before = self.real.setdefault(uid, {}).setdefault(name, slices)
        assert before == slices, "a container that starts again gets what it had"

    def leave(self, uid, *, ended):
        """The pod is gone from the API; its containers may go on, and none have told of it."""
        if ended:
            self.real.pop(uid, None)
            self.show(uid, {})
        del self.pods[uid]
        self.known.apply([Gone(uid, 1)])

    def reap(self):
        """The containers of pods that were deleted by force have ended."""
        self.real = {uid: real for uid, real in self.real.items() if uid in self.pods}

    def check(self):
        containers = tuple(Container(name) for name in NAMES)
        held = [piece for real in self.real.values() for piece in peak(containers, real)]
        for gpu in NODE.gpus:
            assert sum(each.cores for each in held if each.gpu == gpu.index) <= 100
            assert sum(each.memory for each in held if each.gpu == gpu.index) <= gpu.memory


async def live_through(history):
    node, count = Node(), 0
    names = {at: f"u{at}" for at in range(4)}
    for at, (what, who, epoch, given_pieces) in enumerate(history):
        uid = names[who]
        if what == "record":
            node.record(uid, epoch, given_pieces)
        elif what == "restart":
            node.start_agent()
        elif what == "reap":
            node.reap()
        elif uid in node.pods and what == "start":
            await node.start(uid, NAMES[at % 2])
        elif uid in node.pods and what == "strip":
            marks = dict(node.pods[uid].pod.annotations)
            node.show(uid, {key: marks[key] for key in marks if key != SIGNATURE})
        elif uid in node.pods and what in ("end", "delete"):
            node.leave(uid, ended=what == "end")
            count += 1
            names[who] = f"u{who}-{count}"
        node.check()


@settings(max_examples=25)
@given(st.lists(steps, min_size=30, max_size=40))
def test_what_really_runs_never_exceeds_a_gpu(history):
    asyncio.run(live_through(history))
