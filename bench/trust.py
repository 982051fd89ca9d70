"""What signing adds to a bind, and verifying to the start of a container."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from time import thread_time_ns
from typing import Final

from bench.extender import bind_pods, open_extender
from slicewise.dialects import ALLOCATION, DEFAULT
from slicewise.dialects.shared.signed_record import SIGNATURE, judge, write_signed_record
from slicewise.extender.binder import Binder
from slicewise.model import (
    Allocation,
    Container,
    ContainerAllocation,
    Gpu,
    MiB,
    Node,
    Pod,
    Standing,
    cut,
)
from slicewise.trust import PublicKeys, RecordSigner, SigningKey, TrustStore

KEY: Final = SigningKey(bytes(32))
COUNT: Final = 400
_LIMITS: Final = {"slicewise.io/cores": 30, "slicewise.io/memory": 4096}


def measure_signing() -> Iterator[tuple[str, float]]:
    """Binds with and without signatures in one run, and the signature of a record alone."""
    plain, signed = (asyncio.run(_time_binds(signs)) for signs in (False, True))
    binder, node, pods = _open_binder(), _node(), _pods()
    grants = [_grant(pod, node) for pod in pods]
    spent = [
        _time(partial(binder.sign, pod, grant, node))
        for pod, grant in zip(pods, grants, strict=True)
    ]
    yield "sign_ms", median(spent)
    yield "bind_ms", signed
    yield "unsigned_bind_ms", plain


def measure_verifying() -> Iterator[tuple[str, float]]:
    """The verdict on a record that was never seen before, as an agent asks at each start."""
    node, trust = _node(), TrustStore(PublicKeys({KEY.id: KEY.public}))
    spent = []
    for pod in _pods():
        text = write_signed_record(_grant(pod, node), node, epoch=1, now_ns=1)
        annotations = {ALLOCATION: text, SIGNATURE: KEY.sign(pod.uid, text)}
        marked = replace(pod, node=node.name, annotations=annotations)
        spent.append(_time(partial(judge, marked, node, trust)))
        if judge(marked, node, trust).standing is not Standing.SIGNED:
            raise AssertionError(f"{marked.name} is not believed")
    yield "verify_ms", median(spent)
    yield "worst_ms", max(spent)


async def _time_binds(signs: bool) -> float:
    """The median of one bind, in milliseconds of this thread."""
    extender = open_extender()
    if signs:
        extender.binder.signer = RecordSigner(lambda: KEY, lambda: 1)
    spent: list[float] = []
    prefix = "signed" if signs else "plain"
    bound = await bind_pods(extender, COUNT, spent.append, prefix=prefix)
    if not bound:
        raise AssertionError("no pod was bound")
    return median(spent)


def _open_binder() -> Binder:
    binder = open_extender().binder
    binder.signer = RecordSigner(lambda: KEY, lambda: 1)
    return binder


def _node() -> Node:
    gpus = (Gpu(at, f"GPU-{at:036}", "NVIDIA A10", MiB(23028), at) for at in range(8))
    return Node("node", tuple(gpus), agent=True)


def _pods() -> list[Pod]:
    containers = (Container("main", _LIMITS),)
    return [Pod(f"uid-{at}", "bench", f"pod-{at}", containers) for at in range(COUNT)]


def _grant(pod: Pod, node: Node) -> Allocation:
    (container,) = DEFAULT.read_request(pod).containers
    pieces = tuple(cut(share, node.gpus[0]) for share in container.shares)
    return Allocation(node.name, (ContainerAllocation(container.name, pieces),))


def _time(work: Callable[[], object]) -> float:
    """Milliseconds of this thread."""
    began = thread_time_ns()
    work()
    return (thread_time_ns() - began) / 1e6
