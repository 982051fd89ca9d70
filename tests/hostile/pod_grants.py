"""What the agents of a cluster would start, told from API objects alone."""

import contextlib
from collections.abc import Collection

from slicewise.dialects import DEFAULT, Dialects
from slicewise.dialects.shared.signed_record import judge
from slicewise.model import DialectError, Node, Pod, RecordTrust
from slicewise.model.grants import PodGrants


def read_grants(
    pod: Pod,
    node: Node,
    trust: RecordTrust | None,
    *,
    running: Collection[str] = (),
    dialects: Dialects = DEFAULT,
) -> PodGrants:
    """What the agent of this node makes of a bound pod, judged by its record and the keys.

    `running` names containers that run and of which it is not known what they started with:
    they hold what is recorded. A pod that is not believed is granted nothing.
    """
    verdict = judge(pod, node, trust)
    order, allocation = (0, 0), None
    if verdict.signed is not None:
        order, allocation = verdict.signed.order, verdict.signed.allocation
    elif verdict.believed:
        with contextlib.suppress(DialectError):
            allocation = dialects.read_allocation(pod, node)
    recorded = {} if allocation is None else allocation.by_container
    started = {name: recorded[name] for name in running if name in recorded}
    full_name = f"{pod.namespace}/{pod.name}"
    return PodGrants(pod.uid, full_name, pod.containers, recorded, started, order)
