"""Every card ever seen: one that stops answering stays listed, and is listed as unhealthy.

Pods hold slices of a card by its index, so a lost card must not take its index with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from slicewise.model import Links
from slicewise.nvml.driver import Card, Hardware

GONE: Final = "lost"
REMAPPING_FAILED: Final = "has run out of spare memory rows"
# What NVML's recovery action says a card needs before it can be trusted again.
_RECOVERIES: Final = {
    1: "needs a reset",
    2: "needs its node rebooted",
    3: "needs its peers drained",
    4: "needs draining and a reset",
    5: "needs its IMEX domain recovered",
    6: "needs its bus reset",
    7: "needs its system rebooted",
}
FARTHEST: Final = 50

Pair = frozenset[str]


def recovery_words(action: int) -> str:
    """What a card in need of this recovery action lacks; empty when it needs none."""
    return _RECOVERIES.get(action, f"needs recovery action {action}") if action else ""


@dataclass(frozen=True, slots=True)
class Nearness:
    """How near two cards are: NVLink lanes between them, and NVML's common-ancestor level."""

    nvlinks: int = 0
    pcie: int = FARTHEST


@dataclass(frozen=True, slots=True)
class Reading:
    """What a driver says at one moment: the cards that answer, and how near each two are."""

    cards: tuple[Card, ...]
    pairs: Mapping[Pair, Nearness]
    driver: str
    cuda: str


class Roster:
    """Remembers cards by UUID, and adds those that no longer answer to what does."""

    def __init__(self) -> None:
        self._cards: dict[str, Card] = {}
        self._pairs: dict[Pair, Nearness] = {}

    def complete(self, reading: Reading) -> Hardware:
        """The hardware with every remembered card whose place no other card has taken."""
        self._pairs.update(reading.pairs)
        listed = {card.gpu.uuid: card for card in reading.cards}
        indexes = {card.gpu.index for card in reading.cards}
        minors = {card.gpu.minor for card in reading.cards}
        for uuid, card in list(self._cards.items()):
            if uuid in listed:
                continue
            if card.gpu.index in indexes or card.gpu.minor in minors:
                # The driver numbers its cards anew after one was taken out for good.
                del self._cards[uuid]
                continue
            listed[uuid] = replace(card, gpu=replace(card.gpu, healthy=False), trouble=GONE)
        self._cards.update({card.gpu.uuid: card for card in reading.cards})
        cards = tuple(sorted(listed.values(), key=lambda card: card.gpu.index))
        return Hardware(cards, self._link(cards), reading.driver, reading.cuda)

    def _link(self, cards: Sequence[Card]) -> Links | None:
        if len(cards) < 2:
            return None
        uuids = [card.gpu.uuid for card in cards]
        far = Nearness()
        near = [
            [
                Nearness(0, 0) if one == other else self._pairs.get(Pair((one, other)), far)
                for other in uuids
            ]
            for one in uuids
        ]
        return Links(
            tuple(tuple(pair.nvlinks for pair in row) for row in near),
            tuple(tuple(pair.pcie for pair in row) for row in near),
        )
