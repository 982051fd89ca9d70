"""What a bound pod is charged: by a signed record, by believed marks, or by its limits.

A record counts only as far as it is believed, and never makes a pod cheaper than its limits.
What once was signed for a pod, or read from it, stays counted whatever becomes of its
annotations; a pod that no agent of ours would start holds no GPU.
"""

from dataclasses import dataclass
from typing import Final

from slicewise.cluster.charges import (
    charge_everywhere,
    charge_limits,
    charge_roles,
    raise_to_limits,
    raise_to_shares,
)
from slicewise.cluster.entry import CheckedSignature, PodEntry, PodReader, problem_of
from slicewise.cluster.problems import Problem, ProblemKind
from slicewise.dialects import ALLOCATION, SIGNATURE
from slicewise.dialects.shared.signed_record import judge, read_signed_record, read_target
from slicewise.model import (
    Allocation,
    ContainerAllocation,
    DialectError,
    Host,
    MiB,
    Node,
    Percent,
    Phase,
    Pod,
    RecordTrust,
    RecordVerdict,
    Request,
    SignatureState,
    SignedAllocation,
    Slice,
    SlicewiseError,
    Standing,
    TrustPolicy,
    charge,
    peak_sum,
)

UNNAMED: Final = "no record says which GPUs it has"


@dataclass(frozen=True, slots=True)
class PodCost:
    """What a pod is charged on its node, and what is wrong with it.

    One that is charged on every GPU, because nobody knows on which it is, has at most so many
    `gpus`; none where it is known.
    """

    charges: tuple[Slice, ...]
    host: Host
    problem: Problem | None = None
    gpus: int | None = None


class BoundPods:
    """Finds what pods cost, and keeps the newest signed record of each."""

    def __init__(self, reader: PodReader, trust: RecordTrust | None) -> None:
        self._reader = reader
        self.trust = trust
        """The keys and the policy that records are checked by; without them none is checked."""
        self.newest_epoch = 0
        """The highest epoch of any signed record on a bound pod; 0 when there is none."""

    def cost(self, entry: PodEntry, pod: Pod, node: Node) -> PodCost | None:
        """What the pod costs on this node; None when its GPUs are ours to choose."""
        request = entry.request
        if request is not None and not request.containers:
            return PodCost((), request.host)
        if self.trust is None:
            return self._by_marks(entry, pod, node)
        verdict, problem = self._judge(entry, pod, node)
        entry.by_phase = not verdict.believed or verdict.standing is Standing.TAKE_OVER
        if verdict.signed is not None:
            # What annotations ask for today says nothing of what was granted.
            floor = self._reader.read_floor(pod, node)
            granted = raise_to_shares(verdict.signed.allocation, floor, node)
            return PodCost(charge_roles(pod, granted), self._host(pod, request), problem)
        if verdict.believed:
            return self._by_marks(entry, pod, node)
        return self._unbelieved(entry, pod, node, verdict)

    def find_target(self, entry: PodEntry, pod: Pod) -> str | None:
        """The node on which an unbound pod is charged already, if a record says so.

        With keys it must be a record of ours, and none that a newer one has replaced.
        """
        if self.trust is None:
            return self._reader.read_target(pod)
        text, signature = pod.annotations.get(ALLOCATION), pod.annotations.get(SIGNATURE)
        if text is None or signature is None:
            return None
        trust = _RememberedTrust(self.trust, entry)
        if trust.verify(pod.uid, text, signature) is not SignatureState.VALID:
            return None
        found = read_target(text)
        if found is None or (entry.signed is not None and found[1] < entry.signed.order):
            return None
        return found[0]

    def recheck(self, entry: PodEntry) -> None:
        """Forget what the pod's signatures were worth by keys that may be gone."""
        entry.checked = None
        if self.trust is None or entry.proof is None:
            return
        if self.trust.verify(entry.uid, *entry.proof) is not SignatureState.VALID:
            entry.proof = entry.signed = None

    def _judge(self, entry: PodEntry, pod: Pod, node: Node) -> tuple[RecordVerdict, Problem | None]:
        """How far the pod's record is believed; the newest that was signed for it counts."""
        assert self.trust is not None
        verdict = judge(pod, node, _RememberedTrust(self.trust, entry))
        signed, known, problem = verdict.signed, entry.signed, None
        if signed is None and verdict.signature is SignatureState.VALID:
            # It is ours all the same: its node has lost a GPU.
            signed = _read_remaining(pod.annotations[ALLOCATION], pod, node)
            problem = problem_of(pod, ProblemKind.UNREADABLE_ALLOCATION, verdict.detail)
        if signed is not None and (known is None or signed.order >= known.order):
            entry.signed = signed
            entry.proof = pod.annotations[ALLOCATION], pod.annotations[SIGNATURE]
            if pod.node is not None:
                self.newest_epoch = max(self.newest_epoch, signed.epoch)
            return RecordVerdict(Standing.SIGNED, signed), problem
        # The newest record that was signed for the pod on this node.
        kept = None if entry.proof is None else _read_remaining(entry.proof[0], pod, node)
        if signed is not None and known is not None:
            detail = f"its record of epoch {signed.epoch} was replaced in epoch {known.epoch}"
            problem = problem_of(pod, ProblemKind.REPLAYED_RECORD, f"{detail} and counts no more")
            standing = Standing.FORGED if kept is None else Standing.SIGNED
            return RecordVerdict(standing, kept, detail), problem
        if kept is None:
            return verdict, None
        # The agent has seen what was signed, and its containers may have started on it.
        detail = f"{verdict.detail}; the one that was signed for it goes on counting"
        return RecordVerdict(Standing.SIGNED, kept), problem_of(pod, _kind(verdict), detail)

    def _by_marks(self, entry: PodEntry, pod: Pod, node: Node) -> PodCost | None:
        """Charge by what the pod's system recorded, where that is believed."""
        if entry.request is None:
            return self._by_limits(pod, node)
        request, problem = entry.request.on(node), None
        try:
            allocation = self._reader.read_allocation(pod, node, request)
        except SlicewiseError as error:
            problem = problem_of(pod, ProblemKind.UNREADABLE_ALLOCATION, str(error))
            allocation = entry.marked
        else:
            if allocation is None and entry.marked is None and self.may_choose(entry, pod, node):
                return None
            if allocation is None and entry.assumed is not None:
                allocation = entry.assumed.allocation
            if allocation is None:
                problem = problem_of(pod, ProblemKind.MISSING_ALLOCATION, UNNAMED)
                allocation = entry.marked
        if allocation is None or allocation.node != node.name:
            everywhere = charge_everywhere(request, node)
            return PodCost(everywhere, request.host, problem, count_gpus(request))
        if pod.node is not None:
            entry.marked = allocation
        raised = raise_to_shares(allocation, request.containers, node)
        return PodCost(charge(request, raised), request.host, problem)

    def _unbelieved(
        self, entry: PodEntry, pod: Pod, node: Node, verdict: RecordVerdict
    ) -> PodCost | None:
        """Charge a pod by its limits where it may have GPUs, and nothing where it cannot."""
        host = self._host(pod, entry.request)
        if pod.node is None:
            return PodCost((), host)
        silent = entry.request is not None and self._reader.is_adopted(pod, node)
        if silent and self.may_choose(entry, pod, node):
            return None
        if entry.assumed is not None and entry.assumed.allocation.node == node.name:
            # Our own write may be on its way; it is forgotten if it failed.
            return PodCost(charge(entry.assumed.request, entry.assumed.allocation), host)
        if node.agent and pod.phase is Phase.PENDING and pod.uid not in node.started:
            detail = f"{verdict.detail}; it is not started and holds no GPU"
            return PodCost((), host, problem_of(pod, _kind(verdict), detail))
        detail = f"{verdict.detail}; it is charged what its limits say"
        problem = problem_of(pod, _kind(verdict), detail)
        # An agent of another system gave what the marks say. Ours gave what was signed before
        # somebody edited it, so that only the agent itself can tell on which GPUs it is.
        if node.agent:
            allocation = _read_started(pod, node)
        else:
            allocation = None if silent else self._read_marks(entry, pod, node)
        if allocation is None or allocation.node != node.name:
            return self._by_limits(pod, node, problem)
        limits = self._reader.read_limits(pod, node)
        raised = raise_to_limits(allocation, limits, node)
        return PodCost(charge_roles(pod, raised), host, problem)

    def _read_marks(self, entry: PodEntry, pod: Pod, node: Node) -> Allocation | None:
        if entry.request is None:
            return None
        try:
            return self._reader.read_allocation(pod, node, entry.request)
        except SlicewiseError:
            return None

    def _by_limits(self, pod: Pod, node: Node, problem: Problem | None = None) -> PodCost:
        """Charge what the limits say on every GPU: on which it is nobody knows."""
        limits = self._reader.read_limits(pod, node)
        charges = charge_limits(limits, node)
        gpus = peak_sum(limits, [each.gpus for each in limits])
        return PodCost(charges, self._host(pod, None), problem, gpus if charges else None)

    def _host(self, pod: Pod, request: Request | None) -> Host:
        if request is not None:
            return request.host
        try:
            return self._reader.read_host(pod)
        except SlicewiseError:
            return Host()

    def may_choose(self, entry: PodEntry, pod: Pod, node: Node) -> bool:
        """Whether the GPUs of a bound pod are ours to choose; what we held for it counts first."""
        if pod.node is None or not self._reader.is_adopted(pod, node):
            return False
        if node.agent and not entry.waited:
            return False
        if entry.assumed is not None:
            entry.chosen, entry.assumed, entry.confirmed = entry.assumed.allocation, None, False
        return True


def count_gpus(request: Request) -> int:
    """On how many GPUs the pod is at the most."""
    return peak_sum(request.containers, [len(each.shares) for each in request.containers])


def _read_started(pod: Pod, node: Node) -> Allocation | None:
    """The GPUs that our agent says the pod was given, without amounts; None if it says nothing."""
    given = node.started.get(pod.uid)
    if not given:
        return None
    indexes = {gpu.uuid: gpu.index for gpu in node.gpus}
    nothing = Percent(0), MiB(0)
    return Allocation(
        node.name,
        tuple(
            ContainerAllocation(
                name, tuple(Slice(indexes[uuid], *nothing) for uuid in uuids if uuid in indexes)
            )
            for name, uuids in given.items()
        ),
    )


def _read_remaining(text: str, pod: Pod, node: Node) -> SignedAllocation | None:
    """What a record of ours grants of the GPUs that the node has; None if it is for another."""
    try:
        return read_signed_record(text, pod, node, remaining=True)
    except DialectError:
        return None


def _kind(verdict: RecordVerdict) -> ProblemKind:
    unsigned = verdict.standing is Standing.UNSIGNED
    return ProblemKind.UNSIGNED_RECORD if unsigned else ProblemKind.FORGED_RECORD


@dataclass(frozen=True, slots=True)
class _RememberedTrust:
    """The cluster's trust, asked once for each signature that a pod shows."""

    trust: RecordTrust
    entry: PodEntry

    @property
    def policy(self) -> TrustPolicy:
        return self.trust.policy

    def verify(self, uid: str, text: str, signature: str) -> SignatureState:
        checked = self.entry.checked
        if checked is None or (checked.text, checked.signature) != (text, signature):
            state = self.trust.verify(uid, text, signature)
            checked = self.entry.checked = CheckedSignature(text, signature, state)
        return checked.state
