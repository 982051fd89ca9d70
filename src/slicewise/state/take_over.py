"""Whether a pod that ran before records were signed may be signed now, and for which GPUs."""

from collections.abc import Callable

from slicewise.cluster import Problem, ProblemKind
from slicewise.dialects import Dialects
from slicewise.dialects.shared.signed_record import judge
from slicewise.dialects.shared.started_gpus import (
    STARTED_GPUS,
    StartedGpus,
    confirm_allocation,
    read_started_gpus,
)
from slicewise.model import (
    Allocation,
    DialectError,
    Node,
    NodeNotice,
    Pod,
    RecordTrust,
    SlicewiseError,
    Standing,
)

FindNotice = Callable[[str], NodeNotice | None]
"""Finds a Node as the API last showed it."""


class TakeOverExaminer:
    """Compares marks with what nodes say their containers were given."""

    def __init__(self, trust: RecordTrust, find_notice: FindNotice, dialects: Dialects) -> None:
        self._trust = trust
        self._find_notice = find_notice
        self._dialects = dialects
        self._started: dict[str, tuple[str, StartedGpus]] = {}

    def examine(self, pod: Pod, node: Node) -> Allocation | Problem | None:
        """What to sign, why it cannot be, or None when there is nothing to do for this pod."""
        if pod.deleting or judge(pod, node, self._trust).standing is not Standing.TAKE_OVER:
            return None
        started = self._read_started(node.name)
        if isinstance(started, Problem):
            return started
        given = started.get(pod.uid)
        subject = f"{pod.namespace}/{pod.name}"
        if given is None:
            kind = ProblemKind.TAKE_OVER_WAITING.value
            return Problem(subject, kind, f"not in {STARTED_GPUS} of node {node.name} yet")
        try:
            request = self._dialects.read_request(pod)
            marked = self._dialects.read_allocation(pod, node, request)
            return confirm_allocation(request, marked, given, node)
        except SlicewiseError as error:
            return Problem(subject, ProblemKind.TAKE_OVER_MISMATCH.value, f"not signed: {error}")

    def _read_started(self, name: str) -> StartedGpus | Problem:
        notice = self._find_notice(name)
        text = None if notice is None else notice.annotations.get(STARTED_GPUS)
        kind = ProblemKind.TAKE_OVER_WAITING.value
        if text is None:
            words = (
                f"its pods wait to be signed: it publishes no {STARTED_GPUS}; run our agent "
                "there, or name it with `slicewise trust original-agents add`"
            )
            return Problem(f"node/{name}", kind, words)
        known = self._started.get(name)
        if known is not None and known[0] == text:
            return known[1]
        try:
            found = read_started_gpus(text)
        except DialectError as error:
            return Problem(f"node/{name}", kind, str(error))
        self._started[name] = (text, found)
        return found
