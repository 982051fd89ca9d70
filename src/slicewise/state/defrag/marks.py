"""Marks on pods that only fragmentation keeps waiting, so that no node is bought for them.

Cluster Autoscaler leaves a pod alone until it is as old as its annotation says. Our own annotation
says that the other one is ours, and how many moves would do. It is one write for each pod, and none
while what stands there is right.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from slicewise.kube.client import MERGE_PATCH, Call, Client
from slicewise.kube.errors import RefusedError
from slicewise.kube.eviction.pod_facts import PodFacts
from slicewise.kube.names import pod_path

AFTER_MOVES: Final = "slicewise.io/fits-after-moves"
SCALE_UP_DELAY: Final = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
_GONE: Final = frozenset({404, 409})


@dataclass(frozen=True, slots=True)
class Mark:
    """The annotations to write on one pod; None removes one."""

    pod: PodFacts
    annotations: Mapping[str, str | None]


def find_mark(pod: PodFacts, moves: int | None, now: float, seconds: float) -> Mark | None:
    """What to write on a pod that so many moves make room for; None where nothing is to change.

    A delay that somebody else has written stays.
    """
    before = pod.annotations
    ours = AFTER_MOVES in before
    if not moves:
        if not ours:
            return None
        return Mark(pod, {AFTER_MOVES: None, SCALE_UP_DELAY: None})
    if not ours and SCALE_UP_DELAY in before:
        return None
    age = max(0, int(now) - pod.created)
    left = _read_seconds(before.get(SCALE_UP_DELAY, "")) - age
    if ours and before[AFTER_MOVES] == str(moves) and 2 * left >= seconds:
        return None
    delay = f"{age + int(seconds)}s"
    return Mark(pod, {AFTER_MOVES: str(moves), SCALE_UP_DELAY: delay})


async def write_mark(client: Client, mark: Mark) -> bool:
    """Write it on this very pod; false when that is gone."""
    pod = mark.pod
    call = Call("patch", "pods", pod_path(pod.namespace, pod.name))
    # Another pod of this name has another UID, which no patch may change.
    body = {"metadata": {"uid": pod.uid, "annotations": dict(mark.annotations)}}
    try:
        await client.send(call, body, content_type=MERGE_PATCH)
    except RefusedError as error:
        if error.code in _GONE:
            return False
        raise
    return True


def _read_seconds(text: str) -> int:
    number = text.removesuffix("s")
    return int(number) if number.isdecimal() and len(number) < 12 else 0
