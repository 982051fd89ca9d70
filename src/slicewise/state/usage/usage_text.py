"""`slicewise top` as text: one row per node, GPU and container, allocated beside used."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from slicewise.explain.format import join_numbers
from slicewise.model.styled_text import align, escape_cell
from slicewise.model.words import count
from slicewise.reports import MeasuredUse
from slicewise.state.usage.usage_view import ContainerView, GpuView, NodeUsageView, sum_uses

HEADINGS: Final = (
    "NODE / GPU / CONTAINER", "COMPUTE", "USED", "MEMORY MiB", "USED", "ISOLATION", "NOTE",
)  # fmt: skip
UNKNOWN: Final = "-"


@dataclass(frozen=True, slots=True)
class TopRow:
    """One line of the table, and how it is shown on a terminal."""

    cells: tuple[str, ...]
    style: str = ""


def write_rows(nodes: Sequence[NodeUsageView], *, idle: bool = False) -> list[TopRow]:
    """Every row; idle GPUs are gathered in one unless they are asked for."""
    return [row for node in nodes for row in _write_node(node, idle=idle)]


def write_head(nodes: Sequence[NodeUsageView]) -> str:
    """The cluster in one line."""
    gpus = [gpu for node in nodes for gpu in node.gpus]
    if not gpus:
        return f"{count(len(nodes), 'node')}, no GPU"
    memory = sum(gpu.gpu.memory for gpu in gpus)
    allocated = sum(gpu.memory for gpu in gpus)
    line = (
        f"{count(len(nodes), 'node')}, {count(len(gpus), 'GPU')}; allocated "
        f"{sum(gpu.cores for gpu in gpus) // len(gpus)}% of compute and "
        f"{100 * allocated // memory}% of memory"
    )
    known = [node for node in nodes if node.answers]
    if not known:
        return f"{line}; use unknown: no agent answers"
    uses = [use for node in known if (use := node.used()) is not None]
    counted = [gpu for node in known for gpu in node.gpus]
    size = sum(gpu.gpu.memory for gpu in counted)
    return (
        f"{line}; used {sum(use.cores for use in uses) // len(counted)}% and "
        f"{100 * sum(use.memory_mib for use in uses) // size}%"
        + (
            ""
            if len(known) == len(nodes)
            else f" where agents answer ({len(known)} of {len(nodes)})"
        )
    )


def write_plain(nodes: Sequence[NodeUsageView], *, idle: bool = False) -> str:
    """The table for pipes and files."""
    lines = ["\t".join(HEADINGS)]
    lines += ["\t".join(map(escape_cell, row.cells)) for row in write_rows(nodes, idle=idle)]
    return "\n".join((write_head(nodes), *(line.rstrip() for line in align(lines)))) + "\n"


def _write_node(node: NodeUsageView, *, idle: bool) -> Iterator[TopRow]:
    cores, memory, size = node.total()
    used = node.used()
    yield TopRow(
        (
            node.name,
            f"{cores}/{100 * len(node.gpus)}%",
            _percent(used),
            f"{memory}/{size}",
            _mib(used),
            "",
            _models(node.gpus) + ("; agent silent" if node.silent else ""),
        ),
        "bold",
    )
    free = [] if idle else [gpu for gpu in node.gpus if gpu.idle]
    for gpu in node.gpus:
        if gpu not in free:
            yield from _write_gpu(gpu)
    if free:
        numbers = join_numbers(gpu.gpu.index for gpu in free)
        known = [gpu.used for gpu in free if gpu.used is not None]
        use = sum_uses(known) if known else None
        yield TopRow((f"  gpu {numbers}", "0%", _percent(use), "0", _mib(use), "", "free"), "dim")
    for pod in node.unplaced:
        yield TopRow(
            (f"  {pod}", "?", UNKNOWN, "?", UNKNOWN, UNKNOWN, "which GPUs it has is not recorded"),
            "yellow",
        )


def _write_gpu(gpu: GpuView) -> Iterator[TopRow]:
    notes = [gpu.state] if gpu.state else []
    if gpu.loose:
        notes.append(f"{count(len(gpu.loose), 'process', 'processes')} of no pod here")
    if gpu.used is not None and gpu.used.memory_mib > gpu.memory and gpu.parts:
        notes.append("uses more memory than allocated")
    over = gpu.cores > 100 or gpu.memory > gpu.gpu.memory
    notes += ["more is allocated than there is"] if over else []
    yield TopRow(
        (
            f"  gpu {gpu.gpu.index}",
            f"{gpu.cores}%",
            _percent(gpu.used),
            f"{gpu.memory}/{gpu.gpu.memory}",
            _mib(gpu.used),
            str(best) if (best := gpu.gpu.isolation.best) else UNKNOWN,
            "; ".join(notes),
        ),
        "red" if over else "yellow" if notes else "",
    )
    for part in gpu.parts:
        yield _write_part(part)


def _write_part(part: ContainerView) -> TopRow:
    over = part.used is not None and 0 < part.memory < part.used.memory_mib
    return TopRow(
        (
            f"    {part.pod}{f' {part.container}' if part.container else ''}",
            f"{part.cores}%" if part.cores else UNKNOWN,
            _percent(part.used),
            str(part.memory) if part.memory else UNKNOWN,
            _mib(part.used),
            part.isolation or UNKNOWN,
            "over its memory" if over else "",
        ),
        "red" if over else "",
    )


def _models(gpus: Iterable[GpuView]) -> str:
    counts: dict[str, int] = {}
    for gpu in gpus:
        model = gpu.gpu.model or "unknown model"
        counts[model] = counts.get(model, 0) + 1
    return ", ".join(f"{number} x {model}" for model, number in counts.items())


def _percent(use: MeasuredUse | None) -> str:
    return UNKNOWN if use is None else f"{use.cores}%"


def _mib(use: MeasuredUse | None) -> str:
    return UNKNOWN if use is None else str(use.memory_mib)
