"""The demo as people see it: who got which GPUs and why, who waits and for what, what is used."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from slicewise.cli.render.console import EscapingConsole
from slicewise.cli.render.terminal import finish
from slicewise.explain.answer_text import describe
from slicewise.model import NodeState, Slice, Snapshot
from slicewise_playground.demo.allocation_check import CheckedPod
from slicewise_playground.demo.limited_programs import ProgramUse

_WIDTH: Final = 132
_KEY_LETTERS: Final = 8


def show_pods(
    given: Sequence[CheckedPod], systems: Mapping[str, str], whys: Mapping[str, str]
) -> None:
    """One row per placed pod."""
    table = Table(title="Placed pods")
    for name in ("pod", "system", "node", "gpus", "signed by", "why there"):
        table.add_column(name, overflow="fold")
    for each in given:
        pod = each.pod
        why = each.broken or whys.get(pod.uid, "")
        gpus = _list_gpus(each)
        system = systems.get(pod.uid, each.system)
        signer = each.signer[:_KEY_LETTERS]
        table.add_row(f"{pod.namespace}/{pod.name}", system, pod.node, gpus, signer, why)
    _console().print(table)


def show_pending(answer: Mapping[str, Any], event: str) -> None:
    """Why one pod waits, as `slicewise why` and as its own event tell it."""
    console = _console()
    console.print(f"Pending: {answer['pod']}", style="bold", highlight=False)
    if event:
        console.print(f"  event: {event}", highlight=False, markup=False, soft_wrap=True)
    # What each GPU lacks is for those who ask.
    for line in describe(dict(answer), gpus=False):
        console.print(Text.from_ansi(f"  {finish(line)}"), soft_wrap=True)


def show_usage(snapshot: Snapshot) -> None:
    """What is held of every GPU."""
    table = Table("node", "model", "allocated: percent and MiB", "free GPUs", title="GPUs")
    for state in sorted(snapshot, key=lambda state: state.node.name):
        gpus = state.node.gpus
        free = sum(state.untouched(at) for at in range(len(gpus)))
        models = ", ".join(dict.fromkeys(gpu.model for gpu in gpus))
        table.add_row(state.node.name, models, _list_usage(state), f"{free} of {len(gpus)}")
    _console().print(table)


def show_limits(uses: Sequence[ProgramUse]) -> None:
    """What programs on one GPU were promised, what they have, and what was refused."""
    table = Table(title=f"Programs on gpu {uses[0].share.gpu.index} of {uses[0].share.pod.node}")
    for name in ("pod", "promised", "has", "sees", "at its limit"):
        table.add_column(name, overflow="fold")
    for each in uses:
        piece = each.share.piece
        told = "launches are paced"
        if each.refused:
            told = f"CUDA_ERROR_OUT_OF_MEMORY at {each.held_mib} MiB; {told}"
        promised = f"{piece.cores}% " + (f"{piece.memory} MiB" if piece.memory else "")
        has = f"{each.cores}% {each.held_mib} MiB"
        table.add_row(each.share.name, promised, has, f"{each.seen_mib} MiB", each.broken or told)
    _console().print(table)


def show_problems(lines: Iterable[str]) -> None:
    """What did not go as expected."""
    for line in lines:
        _console().print(line, style="red", highlight=False, markup=False, soft_wrap=True)


def say(text: str) -> None:
    """One line of plain text."""
    _console().print(text, highlight=False, markup=False, soft_wrap=True)


def _list_gpus(given: CheckedPod) -> str:
    if given.allocation is None:
        return "by the kubelet's choice"
    many = len(given.allocation.containers) > 1
    return "\n".join(
        (f"{each.name}: " if many else "") + ", ".join(_list_slice(piece) for piece in each.slices)
        for each in given.allocation.containers
    )


def _list_slice(piece: Slice) -> str:
    if piece.cores == 100:
        return f"gpu {piece.gpu} whole"
    parts = [f"{piece.cores}%"] if piece.cores else []
    if piece.memory:
        parts.append(f"{piece.memory} MiB")
    return f"gpu {piece.gpu} {' '.join(parts)}"


def _list_usage(state: NodeState) -> str:
    used = [
        f"gpu {gpu.index} {state.used_cores[at]}% {state.used_memory[at]}/{gpu.memory}"
        for at, gpu in enumerate(state.node.gpus)
        if not state.untouched(at)
    ]
    return "\n".join(used) or "none"


def _console() -> EscapingConsole:
    console = EscapingConsole()
    # Tables in files and pipes must not be cut to the width of a terminal that is not there.
    return console if console.is_terminal else EscapingConsole(width=_WIDTH)
