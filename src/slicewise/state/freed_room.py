"""Notices room that is freed where a scheduler cannot see it.

Schedulers look at pending pods again when a pod ends or a node changes. They do not when a
reservation is given up, when a list of unhealthy GPUs shrinks, or when a node's change reaches the
ledger only after they have asked about it.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from slicewise.cluster import Expire, Ledger
from slicewise.model import FULL, NodeState


class FreedRoom:
    """Sets `changed` whenever the ledger has released something unseen."""

    def __init__(self, ledger: Ledger) -> None:
        self.changed = asyncio.Event()
        """Set when room was freed; the consumer clears it."""
        self._ledger = ledger

    def expire(self, now: float) -> None:
        """End what is past its deadline: nobody came for it."""
        if self._ledger.apply(Expire(now)):
            self.changed.set()

    @contextmanager
    def watch_node(self, name: str) -> Iterator[None]:
        """Compare the node's free room after the block with that before it."""
        before = _room(self._ledger.snapshot().get(name))
        yield
        after = _room(self._ledger.snapshot().get(name))
        if any(now > then for now, then in zip(after, before, strict=True)):
            self.changed.set()

    @contextmanager
    def watch_pod(self, uid: str) -> Iterator[None]:
        """Notice that a pod is gone that held GPUs before it was bound."""
        pod = self._ledger.pod(uid)
        reserved = (pod is None or pod.node is None) and bool(self._ledger.reserved_on(uid))
        yield
        if reserved:
            self.changed.set()

    @contextmanager
    def watch_claim(self, uid: str) -> Iterator[None]:
        """Notice that a claim holds nothing any more, long after its pods have ended."""
        before = self._ledger.claims.find(uid)
        held = before is not None and bool(before.nodes)
        yield
        after = self._ledger.claims.find(uid)
        if held and (after is None or not after.nodes):
            self.changed.set()


def _room(state: NodeState | None) -> tuple[int, int, int]:
    """Usable GPUs of a node, and the compute and memory that is free on them."""
    if state is None:
        return (0, 0, 0)
    gpus = state.node.gpus
    usable = [at for at, gpu in enumerate(gpus) if gpu.usable]
    cores = sum(max(0, FULL - state.used_cores[at]) for at in usable)
    memory = sum(max(0, gpus[at].memory - state.used_memory[at]) for at in usable)
    return (len(usable), cores, memory)
