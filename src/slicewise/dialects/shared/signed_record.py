"""The record that the extender signs: Slicewise's full record, with who decided it and when.

The signature stands beside it and covers the pod's UID and the record's text as it is, so that
nothing has to be written again to verify it. What was granted is read from here alone: annotations
that a tenant edits later change nothing.
"""

from typing import Final

from slicewise.dialects.shared.isolation import read_terms, write_terms
from slicewise.dialects.shared.records import (
    ALLOCATION,
    FORM,
    has_gpu,
    read_slice,
    write_containers,
)
from slicewise.dialects.shared.texts import annotation, is_count, read_json, refuse, write_json
from slicewise.model import (
    Allocation,
    ContainerAllocation,
    DialectError,
    Node,
    Pod,
    RecordTrust,
    RecordVerdict,
    SignatureState,
    SignedAllocation,
    Standing,
)

SIGNATURE: Final = "slicewise.io/signature"
_FIELD: Final = annotation(ALLOCATION)


def write_signed_record(allocation: Allocation, node: Node, *, epoch: int, now_ns: int) -> str:
    """The text to sign, which becomes the annotation's value."""
    containers = write_containers(allocation, node)
    facts = {"at": now_ns, "containers": containers, "epoch": epoch, "node": allocation.node}
    return write_json(facts | write_terms(allocation))


def read_signed_record(
    text: str, pod: Pod, node: Node, *, remaining: bool = False
) -> SignedAllocation:
    """What a record whose signature holds grants to the containers of its pod.

    Slices of GPUs that the node no longer has are left out if what is `remaining` is asked for.
    """
    document = read_json(_FIELD, text, FORM)
    if not isinstance(document, dict) or not isinstance(document.get("containers"), dict):
        raise refuse(_FIELD, text, FORM)
    if document.get("node") != node.name:
        raise refuse(_FIELD, text, f"an allocation on node {node.name}")
    epoch, at, given = document.get("epoch"), document.get("at"), document["containers"]
    if not isinstance(epoch, int) or not isinstance(at, int):
        raise refuse(_FIELD, text, "an epoch and a time")
    if not is_count(epoch) or not is_count(at):
        raise refuse(_FIELD, text, "an epoch and a time from 0 up")
    unknown = set(given) - {each.name for each in pod.containers}
    if unknown:
        raise refuse(_FIELD, text, f"containers of the pod, which has no {min(unknown)}")
    parts = []
    for each in pod.containers:
        slices = given.get(each.name, [])
        if not isinstance(slices, list):
            raise refuse(_FIELD, text, FORM)
        if remaining:
            slices = [entry for entry in slices if has_gpu(entry, node)]
        if slices:
            read = tuple(read_slice(text, entry, node) for entry in slices)
            terms = read_terms(_FIELD, document, each.name)
            parts.append(ContainerAllocation(each.name, read, *terms))
    return SignedAllocation(Allocation(node.name, tuple(parts)), epoch, at)


def read_target(text: str) -> tuple[str, tuple[int, int]] | None:
    """The node of a record whose signature holds, and its order; None when it names none."""
    try:
        document = read_json(_FIELD, text, FORM)
    except DialectError:
        return None
    match document:
        case {"node": str(node), "epoch": int(epoch), "at": int(at)}:
            return node, (epoch, at)
    return None


def judge(pod: Pod, node: Node, trust: RecordTrust | None) -> RecordVerdict:
    """How far the pod's record on this node is believed; nothing is checked without keys."""
    if trust is None:
        return RecordVerdict(Standing.UNCHECKED)
    text, signature = pod.annotations.get(ALLOCATION), pod.annotations.get(SIGNATURE)
    detail, state = "its record is not signed", None
    if text is not None and signature is not None:
        state = trust.verify(pod.uid, text, signature)
        detail = f"its record is {state.value}"
        if state is SignatureState.VALID:
            try:
                signed = read_signed_record(text, pod, node)
                return RecordVerdict(Standing.SIGNED, signed, signature=state)
            except DialectError as error:
                return RecordVerdict(Standing.FORGED, detail=str(error), signature=state)
    policy = trust.policy
    if policy.has_original_agent(node.name):
        return RecordVerdict(Standing.ORIGINAL_AGENT, detail=detail, signature=state)
    if policy.precedes_takeover(pod):
        return RecordVerdict(Standing.TAKE_OVER, detail=detail, signature=state)
    standing = Standing.UNSIGNED if signature is None else Standing.FORGED
    return RecordVerdict(standing, detail=detail, signature=state)
