"""`what-if --node-template`: what new nodes would take of the pods that wait, and who needs one."""

from collections.abc import Mapping, Sequence
from typing import Any

from slicewise.cli.defrag.command import open_look
from slicewise.cli.extender_client import ExtenderTarget
from slicewise.kube.client import Client
from slicewise.model import count
from slicewise.model.styled_text import FAINT, GOOD, NOTABLE, escape_cell, paint
from slicewise.placement.defrag import SearchLimits
from slicewise.state.defrag.node_groups import (
    NodeGroup,
    PendingPod,
    fill_group,
    read_groups,
    sort_pending,
)
from slicewise.state.settings import open_reader


async def ask_node_groups(
    client: Client, target: ExtenderTarget, documents: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What each group's new nodes would take, and what each pod that waits needs."""
    groups = read_groups(open_reader(), documents)
    async with open_look(client, target) as look:
        view = await look()
        pods = sort_pending(view, SearchLimits())
        return describe_groups(groups, pods)


def describe_groups(groups: Sequence[NodeGroup], pods: Sequence[PendingPod]) -> dict[str, Any]:
    """The answer as JSON; only pods that neither fit now nor after moves are given new nodes."""
    needing = [pod for pod in pods if pod.moves is None]
    filled = {group.name: fill_group(group, needing) for group in groups}
    takers = {
        pod.name: [
            name for name, nodes in filled.items() if any(pod.name in each for each in nodes)
        ]
        for pod in needing
    }
    return {
        "groups": [
            {"group": name, "nodes": len(nodes), "pods": nodes} for name, nodes in filled.items()
        ],
        "pods": [
            {
                "pod": pod.name,
                "asks": pod.query.asks,
                "needs": "node" if pod.moves is None else "moves" if pod.moves else "nothing",
                **({"moves": pod.moves} if pod.moves else {}),
                **({"groups": takers[pod.name]} if pod.moves is None else {}),
            }
            for pod in pods
        ],
        "fits": all(takers.values()),
    }


def describe_group_text(answer: Mapping[str, Any]) -> list[str]:
    """The answer in words: groups first, then pods."""
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
    lines += [_describe_pod(pod) for pod in answer["pods"]]
    return lines or ["no pod waits for GPUs"]


def _describe_pod(pod: Mapping[str, Any]) -> str:
    name = escape_cell(pod["pod"])
    if pod["needs"] == "nothing":
        return paint(f"{name}: fits now", GOOD)
    if pod["needs"] == "moves":
        moves = count(pod["moves"], "move")
        return paint(f"{name}: fits after {moves}, so no node need be bought for it", NOTABLE)
    if not pod["groups"]:
        return paint(f"{name}: fits on no group's nodes: {escape_cell(pod['asks'])}", FAINT)
    return f"{name}: needs a node of {', '.join(map(escape_cell, pod['groups']))}"
