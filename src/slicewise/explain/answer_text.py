"""The answers of `why` and `what-if` in words: first the answer, then reasons, nearest first."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from slicewise.explain.defrag_plans import tell_few_moves
from slicewise.explain.format import join_numbers
from slicewise.model import count
from slicewise.model.claim import TOLERATE_ENGINE
from slicewise.model.styled_text import BAD, FAINT, GOOD, NOTABLE, paint

_SHOWN: Final = 10
_CHANGES: Final = 2


def describe(
    answer: Mapping[str, Any], *, gpus: bool = True, most: int | None = _SHOWN
) -> list[str]:
    """Why a pod is where it is, or nowhere."""
    claims = answer.get("claims", ())
    asks = answer["asks"] or (f"GPUs by {count(len(claims), 'claim')}" if claims else "no GPU")
    lines = [f"pod {paint(answer['pod'], bold=True)} asks for {asks}"]
    if answer.get("node"):
        held = ", ".join(answer.get("holds", ())) or "no GPU"
        holds = "" if claims and not answer["asks"] else f" and holds {held}"
        lines.append(paint(f"it is on node {answer['node']}{holds}", GOOD))
    for claim in claims:
        lines += describe_claim(claim)
    if claims and not answer["asks"]:
        return lines
    lines.append(_summarise(answer))
    if answer.get("roomKept"):
        lines.append(paint(f"room is kept for it {answer['roomKept']}", NOTABLE))
    lines += _describe_verdict(answer)
    left_out = answer.get("leftOut", ())
    if left_out:
        lines.append(_describe_left_out(left_out))
    nodes = sorted(answer["nodes"], key=_nearness)
    for node in nodes[:most]:
        lines += _describe_node(node, gpus=gpus)
    hidden = len(nodes) - len(nodes[:most])
    if hidden:
        lines.append(
            paint(f"  and {count(hidden, 'more node')}: --all, --node NAME or -o json", FAINT)
        )
    return lines


def describe_what_if(answer: Mapping[str, Any]) -> list[str]:
    """Where pods would go, pods with equal outcomes grouped, and why others would not fit."""
    pods = answer["pods"]
    fitting, colour = answer["fitting"], GOOD if answer["fits"] else BAD
    if len(pods) == 1:
        lines = [paint("it fits" if answer["fits"] else "it does not fit", colour, bold=True)]
    else:
        lines = [paint(f"{fitting} of {len(pods)} pods fit", colour, bold=True)]
    for fits, group in groupby(pods, key=lambda each: bool(each["fits"])):
        if fits:
            for _, alike in groupby(
                group, key=lambda each: (each.get("node"), each.get("allocation"))
            ):
                lines.append(_describe_place(list(alike)))
            continue
        for _, alike in groupby(group, key=lambda each: (each["asks"], each["summary"])):
            lines += _describe_refused(list(alike))
    return lines


def fits_somewhere(answer: Mapping[str, Any]) -> bool:
    """Whether the pod is placed, could be placed now, or asks for no GPU."""
    if answer.get("node"):
        return True
    if not all(map(claim_fits, answer.get("claims", ()))):
        return False
    return bool(answer.get("best") or not answer["asks"])


def _summarise(answer: Mapping[str, Any]) -> str:
    """How many nodes can take the pod, of those there were to ask."""
    asked: bool = not answer["summary"].startswith("0 of 0 nodes")
    return str(answer["summary"]) if asked else "there is no node to ask about it"


def _describe_verdict(answer: Mapping[str, Any]) -> list[str]:
    best, change = answer.get("best"), answer.get("smallestChange")
    if best:
        gpus = "; ".join(best["allocation"])
        return [paint(f"best now: node {best['node']}, {gpus} (policy {best['policy']})", GOOD)]
    lines = []
    if change:
        lines.append(f"smallest change: {change['change']} (node {change['node']})")
    if answer.get("afterMoves"):
        lines.append(tell_few_moves(answer["afterMoves"]))
    return [paint(line, NOTABLE) for line in lines]


def _describe_left_out(left_out: Sequence[Mapping[str, str]]) -> str:
    counts = Counter(each["why"] for each in left_out)
    reasons = "; ".join(f"{number}: {why}" for why, number in sorted(counts.items()))
    return f"the scheduler itself leaves out {len(left_out)}: {reasons}"


def _nearness(node: Mapping[str, Any]) -> tuple[bool, float]:
    """Nodes that fit first, then those that the smallest change would make fit."""
    changes = node.get("changes", ())
    return not node["fits"], changes[0]["distance"] if changes else 2.0


def _describe_node(node: Mapping[str, Any], *, gpus: bool) -> list[str]:
    if node["fits"]:
        return [f"  {node['node']}: {paint('fits', GOOD)}"]
    lines = [f"  {node['node']}: {paint(node.get('phrase', node.get('reason')), BAD)}"]
    if node.get("detail"):
        lines.append(f"    {node['detail']}")
    if gpus:
        lines += _describe_gpus(node.get("gpus", ()))
    lines += [f"    would fit: {change['text']}" for change in node.get("changes", ())[:_CHANGES]]
    return lines


def _describe_gpus(gpus: Sequence[Mapping[str, Any]]) -> list[str]:
    """What GPUs lack, equal ones together."""
    alike: dict[tuple[str, str], list[int]] = {}
    for gpu in gpus:
        if gpu["missing"]:
            key = (gpu["model"], ", ".join(gpu["missing"]))
            alike.setdefault(key, []).append(gpu["gpu"])
    return [
        f"    gpu {join_numbers(numbers)}{f' ({model})' if model else ''}: "
        f"{'lacks ' if missing[0].isdigit() else ''}{missing}"
        for (model, missing), numbers in alike.items()
    ]


def _describe_place(pods: Sequence[Mapping[str, Any]]) -> str:
    pod = pods[0]
    if "node" not in pod:
        return f"  {_name(pods)}: {pod['summary']}"
    told = f"  {_name(pods)}: node {paint(pod['node'], GOOD)}, {'; '.join(pod['allocation'])}"
    untried = ", ".join(pod.get("notTried", ()))
    return f"{told} (not tried: {untried})" if untried else told


def _describe_refused(pods: Sequence[Mapping[str, Any]]) -> list[str]:
    first = pods[0]
    lines = [
        f"  {_name(pods)}: {paint('no node', BAD)} for {first['asks']}",
        f"    {_summarise(first)}",
    ]
    lines += [f"    {line}" for line in _describe_verdict(first)]
    for claim in first.get("claims", ()):
        lines += [f"    {line}" for line in describe_claim(claim)]
    if first.get("leftOut"):
        lines.append(f"    {_describe_left_out(first['leftOut'])}")
    return lines


def _name(pods: Sequence[Mapping[str, Any]]) -> str:
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    return f"{pods[0]['pod']}{more}"


def claim_fits(claim: Mapping[str, Any]) -> bool:
    """Whether the claim has its GPUs, or could have them now."""
    if "requests" in claim:
        # Of alternatives, one is enough.
        groups: dict[str, bool] = {}
        for each in claim["requests"]:
            name = each["request"].partition("/")[0]
            groups[name] = groups.get(name, False) or each["fits"]
        return all(groups.values())
    return "holds" in claim and "reason" not in claim


def describe_claim(claim: Mapping[str, Any]) -> Iterator[str]:
    """The state of the claim, and why it has no GPU if it has none."""
    colour = GOOD if claim_fits(claim) else BAD
    yield f"claim {paint(claim['claim'], bold=True)}: {paint(claim['state'], colour)}"
    if "reason" in claim:
        yield f"  {claim['reason']}"
    for held in claim.get("holds", ()):
        yield f"  {held}"
    for request in claim.get("requests", ()):
        yield from _describe_claim_request(request)
    for each in claim.get("constraints", ()):
        yield f"  its requests must also agree: {each}, which is not tried here"
    if "leftOut" in claim:
        yield paint(f"  our engine does not allocate it: {claim['leftOut']}", BAD)
        yield f"    let the scheduler do so: {TOLERATE_ENGINE} in its requests"


def _describe_claim_request(request: Mapping[str, Any]) -> Iterator[str]:
    yield f"  request {request['request']} asks for {request['asks']}"
    if "problem" in request:
        yield f"    {paint(request['problem'], BAD)}"
    for each, why in request.get("notEvaluated", {}).items():
        yield paint(f"    not evaluated, and taken as met: {each} ({why})", NOTABLE)
    nodes = sorted(request["nodes"], key=lambda each: not each["fits"])
    for node in nodes[:_SHOWN]:
        fits = f"{paint('fits', GOOD)} on {count(node['fitting'], 'GPU')}"
        yield f"    {node['node']}: {fits if node['fits'] else paint('does not fit', BAD)}"
        if not node["fits"]:
            yield from _describe_devices(node)
    if len(nodes) > _SHOWN:
        yield f"    and {count(len(nodes) - _SHOWN, 'more node')}: -o json"


def _describe_devices(node: Mapping[str, Any]) -> Iterator[str]:
    for gpu in node["gpus"]:
        missing = ", ".join(gpu["missing"])
        lacks = "lacks " if missing[:1].isdigit() else ""
        yield f"      gpu {gpu['gpu']}: {lacks}{missing or 'has room'}"
