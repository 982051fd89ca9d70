"""Plans of moves in words: what fits after which moves, and what new nodes would take."""

from collections.abc import Mapping, Sequence
from typing import Any

from slicewise.model import count
from slicewise.model.styled_text import BAD, FAINT, GOOD, NOTABLE, align, escape_cell, paint


def describe_plans(plans: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every plan, and what none of them could move."""
    if not plans:
        return ["every pod that waits fits somewhere now, and so does the mix of pods here"]
    lines = [line for plan in plans for line in _describe(plan)]
    if len(plans) > 1:
        lines.append(paint("each plan is made as if it were the only one", FAINT))
    not_moved = plans[0]["notMoved"]
    if not_moved:
        parts = "; ".join(f"{number}: {why}" for why, number in not_moved.items())
        lines.append(paint(f"pods that are not moved: {parts}", FAINT))
    return lines


def _describe(plan: Mapping[str, Any]) -> list[str]:
    part = plan.get("partOfPods")
    of_all = f", which {100 * part:.1f} percent of the pods here ask for" if part else ""
    lines = [f"{paint(escape_cell(plan['pod']), bold=True)}: {escape_cell(plan['asks'])}{of_all}"]
    if not plan["fits"]:
        known = "" if plan["exact"] else "; not everything was tried"
        return [*lines, paint(f"  no moves were found after which it fits{known}", BAD)]
    moves, then = plan["moves"], plan["then"]
    place = f"node {then['node']}, {'; '.join(then['allocation'])}"
    if not moves:
        return [*lines, paint(f"  it fits now: {place}", GOOD)]
    fewest = ", and no fewer would do" if plan["exact"] else ""
    hours = f"{plan['gpuHours']:.1f} GPU-hours of work are interrupted at most"
    text = f"  fits after {count(len(moves), 'move')}{fewest}; {hours}"
    rows = [
        f"  {escape_cell(move['pod'])}\t{_place(move['from'])}\t{_place(move['to'])}\t"
        f"{move['gpuHours']:.1f}"
        for move in moves
    ]
    table = align(["  POD\tFROM\tTO\tGPU-HOURS", *rows])
    return [*lines, paint(text, NOTABLE), *table, paint(f"  then: {place}", GOOD)]


def _place(where: Mapping[str, str]) -> str:
    return f"{escape_cell(where['node'])} gpu {where['gpus']}"


def describe_node_groups(answer: Mapping[str, Any]) -> list[str]:
    """What new nodes would take, groups first, then what each pod needs."""
    lines = []
    for group in answer["groups"]:
        name = paint(escape_cell(group["group"]), bold=True)
        if not group["nodes"]:
            lines.append(f"{name}: no pod that waits needs it and fits on it")
            continue
        total = sum(map(len, group["pods"]))
        lines.append(f"{name}: {count(group['nodes'], 'new node')} for {count(total, 'pod')}")
        for at, taken in enumerate(group["pods"], 1):
            lines.append(f"  node {at}: {', '.join(map(escape_cell, taken))}")
    lines += [_describe_need(pod) for pod in answer["pods"]]
    return lines or ["no pod waits for GPUs"]


def _describe_need(pod: Mapping[str, Any]) -> str:
    name = escape_cell(pod["pod"])
    if pod["needs"] == "nothing":
        return paint(f"{name}: fits now", GOOD)
    if pod["needs"] == "moves":
        moves = count(pod["moves"], "move")
        return paint(f"{name}: fits after {moves}, so no node has to be bought for it", NOTABLE)
    if not pod["groups"]:
        return paint(f"{name}: fits on no group's nodes: {escape_cell(pod['asks'])}", FAINT)
    return f"{name}: needs a node of {', '.join(map(escape_cell, pod['groups']))}"
