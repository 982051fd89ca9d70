"""The answers of `why` and `what-if` in words: first the answer, then reasons, nearest first."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from slicewise.cli.render.terminal import BAD, FAINT, GOOD, NOTABLE, paint
from slicewise.explain.format import join_numbers
from slicewise.model import count

_SHOWN: Final = 10
_CHANGES: Final = 2


def describe(
    answer: Mapping[str, Any], *, gpus: bool = True, most: int | None = _SHOWN
) -> list[str]:
    """Why a pod is where it is, or nowhere."""
    asks = answer["asks"] or "no GPU"
    lines = [f"pod {paint(answer['pod'], bold=True)} asks for {asks}"]
    if answer.get("node"):
        held = ", ".join(answer.get("holds", ())) or "no GPU"
        lines.append(paint(f"it is on node {answer['node']} and holds {held}", GOOD))
    lines.append(_summarise(answer))
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
    return bool(answer.get("node") or answer.get("best") or not answer["asks"])


def _summarise(answer: Mapping[str, Any]) -> str:
    """How many nodes can take the pod, of those there were to ask."""
    asked: bool = not answer["summary"].startswith("0 of 0 nodes")
    return str(answer["summary"]) if asked else "there is no node to ask about it"


def _describe_verdict(answer: Mapping[str, Any]) -> list[str]:
    best, change = answer.get("best"), answer.get("smallestChange")
    if best:
        gpus = "; ".join(best["allocation"])
        return [paint(f"best now: node {best['node']}, {gpus} (policy {best['policy']})", GOOD)]
    if change:
        text = f"smallest change: {change['change']} (node {change['node']})"
        return [paint(text, NOTABLE)]
    return []


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
    return f"  {_name(pods)}: node {paint(pod['node'], GOOD)}, {'; '.join(pod['allocation'])}"


def _describe_refused(pods: Sequence[Mapping[str, Any]]) -> list[str]:
    first = pods[0]
    lines = [
        f"  {_name(pods)}: {paint('no node', BAD)} for {first['asks']}",
        f"    {_summarise(first)}",
    ]
    lines += [f"    {line}" for line in _describe_verdict(first)]
    if first.get("leftOut"):
        lines.append(f"    {_describe_left_out(first['leftOut'])}")
    return lines


def _name(pods: Sequence[Mapping[str, Any]]) -> str:
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    return f"{pods[0]['pod']}{more}"
