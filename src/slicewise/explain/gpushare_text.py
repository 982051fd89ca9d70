"""`kubectl inspect gpushare` as text: the original's two views, and the same as a document.

The original's own columns, totals and dashes are kept to the letter; `wide` only adds columns.
"""

from collections.abc import Sequence
from typing import Any

from slicewise.explain.gpushare_inspect import InspectedNode, InspectedPod
from slicewise.model.styled_text import align, escape_cell


def show_summary(nodes: Sequence[InspectedNode], *, wide: bool = False) -> str:
    """One row per node, and the cluster's total."""
    width = max((gpu.number + 1 for node in nodes for gpu in node.gpus), default=0)
    pending = any(node.pending for node in nodes)
    rows = [_summary_row(node, width, pending) for node in nodes]
    dashes = len(rows[0].encode()) + 1 + 20 if rows else 0
    heading = ["NAME", "IPADDRESS", *(f"GPU{at}(Allocated/Total)" for at in range(width))]
    heading += ["PENDING(Allocated)"] if pending else []
    heading.append(f"GPU Memory({unit_of(nodes)})")
    if wide:
        heading += ["PODS", "MODEL", "NOT USABLE", "ISOLATION"]
        rows = [f"{row}\t{_more(node)}" for row, node in zip(rows, nodes, strict=True)]
    lines = ["\t".join(heading), *rows, "-" * dashes, "Allocated/Total GPU Memory In Cluster:"]
    return _join([*lines, f"{_total(nodes)}\t"])


def show_details(nodes: Sequence[InspectedNode], *, wide: bool = False) -> str:
    """One table per node with a row per pod, and the cluster's total."""
    lines: list[str] = []
    first = [_pod_row(nodes[0], pod) for pod in nodes[0].pods] if nodes else []
    dashes = "-" * (10 + sum(len(row.encode()) + 1 for row in first))
    for node in nodes:
        heading = ["NAME", "NAMESPACE", *(f"GPU{at}(Allocated)" for at in range(_width(node)))]
        heading += ["Pending(Allocated)"] if node.pending else []
        heading += ["SYSTEM", "PHASE"] if wide else []
        lines += ["", f"NAME:\t{node.name}", f"IPADDRESS:\t{node.address}", ""]
        lines.append("\t".join(heading) + "\t")
        for pod in node.pods:
            lines.append(_pod_row(node, pod) + (f"{pod.system}\t{pod.phase}\t" if wide else ""))
        lines.append(f"Allocated :\t{node.used} ({_percent(node.used, node.total)}%)\t")
        lines += [f"Total :\t{node.total} \t", dashes]
    return _join([*lines, "", "", f"Allocated/Total GPU Memory In Cluster:\t{_total(nodes)}\t"])


def describe(nodes: Sequence[InspectedNode]) -> dict[str, Any]:
    """The same as a document, shaped like the extender's own inspect."""
    used, total = sum(node.used for node in nodes), sum(node.total for node in nodes)
    return {
        "unit": unit_of(nodes),
        "usedGPU": used,
        "totalGPU": total,
        "percent": _percent(used, total),
        "nodes": [_describe_node(node) for node in nodes],
    }


def unit_of(nodes: Sequence[InspectedNode]) -> str:
    """The unit of all amounts; empty when no node tells."""
    return next((node.unit for node in nodes if node.unit), "")


def _summary_row(node: InspectedNode, width: int, pending: bool) -> str:
    totals = {gpu.number: gpu.total for gpu in node.gpus}
    cells = [node.name, node.address]
    cells += [f"{node.used_of(at)}/{totals.get(at, 0)}" for at in range(width)]
    cells += [str(node.pending or "")] if pending else []
    return "\t".join([*cells, f"{node.used}/{node.total}"])


def _pod_row(node: InspectedNode, pod: InspectedPod) -> str:
    amounts = [pod.amounts.get(at, 0) for at in range(_width(node))]
    amounts += [pod.pending] if node.pending else []
    return "\t".join([pod.name, pod.namespace, *map(str, amounts)]) + "\t"


def _width(node: InspectedNode) -> int:
    return max((gpu.number + 1 for gpu in node.gpus), default=0)


def _more(node: InspectedNode) -> str:
    models = ", ".join(dict.fromkeys(gpu.model for gpu in node.gpus if gpu.model))
    unusable = ",".join(str(gpu.number) for gpu in node.gpus if not gpu.usable)
    kept = ", ".join(dict.fromkeys(gpu.isolation or "none" for gpu in node.gpus))
    return f"{len(node.pods)}\t{escape_cell(models) or '-'}\t{unusable or '-'}\t{kept or '-'}"


def _total(nodes: Sequence[InspectedNode]) -> str:
    used, total = sum(node.used for node in nodes), sum(node.total for node in nodes)
    return f"{used}/{total} ({_percent(used, total)}%)"


def _percent(used: int, total: int) -> int:
    return 100 * used // total if total else 0


def _describe_node(node: InspectedNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "address": node.address,
        "totalGPU": node.total,
        "usedGPU": node.used,
        "pendingGPU": node.pending,
        "devs": [
            {
                "id": gpu.number,
                "totalGPU": gpu.total,
                "usedGPU": node.used_of(gpu.number),
                "model": gpu.model,
                "usable": gpu.usable,
                "isolation": gpu.isolation or "none",
                "pods": [
                    _describe_pod(pod, pod.amounts[gpu.number])
                    for pod in node.pods
                    if gpu.number in pod.amounts
                ],
            }
            for gpu in node.gpus
        ],
        "pending": [_describe_pod(pod, pod.pending) for pod in node.pods if pod.pending],
    }


def _describe_pod(pod: InspectedPod, units: int) -> dict[str, Any]:
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "usedGPU": units,
        "system": pod.system,
    }


def _join(lines: Sequence[str]) -> str:
    return "\n".join(align(lines)) + "\n"
