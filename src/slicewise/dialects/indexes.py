"""Cards by number: some systems write a card's index, others its device minor number.

A driver may number `/dev/nvidia<minor>` otherwise than it enumerates cards, so every number is
looked up on its node and becomes a card before anything is counted.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from slicewise.dialects.texts import count_of, refuse
from slicewise.model import ContainerRequest, DialectError, Gpu, Node, Slice, cut

_INDEXES: Final = re.compile(r"[0-9]{1,6}(,[0-9]{1,6}){0,63}")

CardFinder = Callable[[Node, int], Gpu | None]


def card_at(node: Node, index: int) -> Gpu | None:
    """The card with this index."""
    at = node.position(index)
    return None if at is None else node.gpus[at]


def card_with_minor(node: Node, minor: int) -> Gpu | None:
    """The card behind `/dev/nvidia<minor>`."""
    return next((gpu for gpu in node.gpus if gpu.minor == minor), None)


def read_cards(field: str, text: str, node: Node, find: CardFinder) -> tuple[Gpu, ...]:
    """The cards a value like '0,1' names, in its order and each once."""
    if _INDEXES.fullmatch(text) is None:
        raise refuse(field, text, "GPU indexes like '0,1'")
    cards = []
    for number in map(int, text.split(",")):
        card = find(node, number)
        if card is None:
            raise refuse(field, text, f"GPUs of node {node.name}, which has no {number}")
        if card in cards:
            raise refuse(field, text, "each GPU once")
        cards.append(card)
    return tuple(cards)


def cut_cards(
    field: str, text: str, container: ContainerRequest, cards: Sequence[Gpu]
) -> tuple[Slice, ...]:
    """The container's slices of these cards, which must be as many as its shares."""
    wanted = len(container.shares)
    if len(cards) != wanted:
        raise refuse(field, text, count_of(wanted, "GPU index", "GPU indexes"))
    return tuple(cut(share, card) for share, card in zip(container.shares, cards, strict=True))


def used_card(node: Node, piece: Slice) -> Gpu:
    """The card a slice was cut from."""
    card = card_at(node, piece.gpu)
    if card is None:
        raise DialectError(f"allocation of gpu {piece.gpu}: node {node.name} has no such gpu")
    return card


def write_numbers(numbers: Iterable[int]) -> str:
    """Card numbers joined by commas, without spaces."""
    return ",".join(map(str, numbers))
