"""Cordons of single GPUs: closed to new pods by an annotation of the Node, and opened again."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from slicewise.cluster import ClaimSeen, Ledger, NodeSeen, PodSeen
from slicewise.dialects import CORDONED, DEFAULT
from slicewise.dialects.shared.inventory import is_invented
from slicewise.kube import sources
from slicewise.kube.client import Client
from slicewise.kube.dra.claims import claims
from slicewise.kube.errors import RefusedError
from slicewise.kube.node_details import find_node_details
from slicewise.kube.node_patch import annotate_node
from slicewise.kube.objects import ObjectReader
from slicewise.kube.reads import list_all
from slicewise.model import Gpu, Node, SlicewiseError
from slicewise.state.trust import find_trust

_SETTLE_SECONDS: Final = 1.0


class CordonError(SlicewiseError):
    """A node or GPU that is not there."""


async def cordon_gpus(
    client: Client, reader: ObjectReader, name: str, wanted: Sequence[str]
) -> list[str]:
    """Cordon the GPUs; says which, and who stays on them."""
    node = await _read_node(client, reader, name)
    gpus = [find_gpu(node, each) for each in wanted]
    before = await _write(client, name, lambda entries: _add(entries, gpus))
    holders = await _read_holders(client, reader, node)
    lines = []
    for gpu in gpus:
        word = "was cordoned already" if _names(gpu) & set(before) else "cordoned"
        pods = holders.get(gpu.index, [])
        stay = f"; {_count_stays(pods)}: {', '.join(pods)}" if pods else "; no pod is on it"
        lines.append(f"{_describe(gpu)} of node {name} {word}{stay}")
    return lines


async def uncordon_gpus(
    client: Client, reader: ObjectReader, name: str, wanted: Sequence[str]
) -> list[str]:
    """Uncordon the GPUs, or all there are when none is named; says which."""
    node = await _read_node(client, reader, name)
    # A GPU that has left the node can still be taken off the list, by the word it is there under.
    gpus = [_find_known(node, each) for each in wanted]
    gone = {each for each, gpu in zip(wanted, gpus, strict=True) if gpu is None}
    names = gone.union(*(_names(gpu) for gpu in gpus if gpu is not None))

    def keep(entries: list[str]) -> list[str]:
        return [each for each in entries if each not in names] if wanted else []

    before = await _write(client, name, keep, last=False)
    if keep(before) != before:
        # Schedulers try waiting pods again at once, perhaps before the extender has heard of it:
        # a second change of the Node makes them look once more.
        await client.sleep(_SETTLE_SECONDS)
    await _write(client, name, keep)
    lines = []
    for each, gpu in zip(wanted, gpus, strict=True):
        if gpu is None and each not in before:
            raise CordonError(_unknown(node, each))
        shown = each if gpu is None else _describe(gpu)
        was = each in before if gpu is None else bool(_names(gpu) & set(before))
        lines.append(f"{shown} of node {name} {'takes pods again' if was else 'was not cordoned'}")
    if not wanted:
        lines = [f"{each} of node {name} takes pods again" for each in before]
    return lines or [f"no GPU of node {name} was cordoned"]


def _count_stays(pods: Sequence[str]) -> str:
    return "1 pod stays" if len(pods) == 1 else f"{len(pods)} pods stay"


def find_gpu(node: Node, word: str) -> Gpu:
    """The GPU with this index or UUID; the beginning of a UUID is enough if no other has it."""
    gpu = _find_known(node, word)
    if gpu is None:
        raise CordonError(_unknown(node, word))
    return gpu


def _find_known(node: Node, word: str) -> Gpu | None:
    found = [gpu for gpu in node.gpus if word in _names(gpu)]
    if not found and len(word) > 4:
        found = [gpu for gpu in node.gpus if gpu.uuid.startswith(word)]
    return found[0] if len(found) == 1 else None


def _unknown(node: Node, word: str) -> str:
    if not node.gpus:
        return f"node {node.name} lists no GPU"
    gpus = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in node.gpus)
    return f"node {node.name} has no GPU {word!r}: expected one of {gpus}"


def _names(gpu: Gpu) -> set[str]:
    return {str(gpu.index), gpu.uuid}


def _describe(gpu: Gpu) -> str:
    facts = [gpu.model, "" if is_invented(gpu.uuid) else gpu.uuid]
    shown = ", ".join(fact for fact in facts if fact)
    return f"gpu {gpu.index} ({shown})" if shown else f"gpu {gpu.index}"


def _add(entries: list[str], gpus: Sequence[Gpu]) -> list[str]:
    for gpu in gpus:
        if not _names(gpu) & set(entries):
            # An invented UUID says no more than the index.
            entries = [*entries, str(gpu.index) if is_invented(gpu.uuid) else gpu.uuid]
    return entries


async def _write(
    client: Client, name: str, change: Callable[[list[str]], list[str]], *, last: bool = True
) -> list[str]:
    """What the list had before it was changed; one that is not the last leaves a comma behind."""

    def rewrite(text: str) -> str:
        entries = _split(text)
        kept = change(entries)
        return text if not last and kept == entries else ",".join(kept) + ("" if last else ",")

    written = await annotate_node(client, name, CORDONED, rewrite)
    if written is None:
        raise CordonError(f'node "{name}" not found')
    return _split(written[0])


def _split(text: str) -> list[str]:
    return [entry for part in text.split(",") if (entry := part.strip())]


async def _read_node(client: Client, reader: ObjectReader, name: str) -> Node:
    found = await find_node_details(client, reader, name)
    if found is None:
        raise CordonError(f'node "{name}" not found')
    return DEFAULT.read_node(found.notice)


async def _read_holders(client: Client, reader: ObjectReader, node: Node) -> dict[int, list[str]]:
    selector = f"spec.nodeName={node.name},{sources.LIVE_PODS}"
    ledger = Ledger(DEFAULT, trust=await find_trust(client))
    ledger.apply(NodeSeen(node))
    for pod in await list_all(client, sources.pods(reader, selector)):
        ledger.apply(PodSeen(pod))
    with suppress(RefusedError):
        # Older servers have no claims, and not everybody may list them.
        for claim in await list_all(client, claims()):
            ledger.apply(ClaimSeen(claim))
    holders: dict[int, list[str]] = {}
    for state in ledger.snapshot():
        for holding in sorted(state.holdings, key=lambda each: each.pod):
            for piece in holding.charges:
                holders.setdefault(piece.gpu, []).append(holding.holder)
    return holders
