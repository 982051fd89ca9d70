"""The node's cards as they stand: read from the driver, judged, scaled, and told to the others.

The driver is asked in a thread of its own, so that a slow one holds up nobody.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

from slicewise.dialects.inventory import GPUS, cordon_gpus, read_gpus
from slicewise.dialects.publications import NodeFacts
from slicewise.model import DialectError, InventoryError, MiB, Node, NodeNotice
from slicewise.nodeagent.health import Change, Health
from slicewise.nvml.driver import Card, Driver, DriverError, Fault, Hardware

_log: Final = logging.getLogger(__name__)
LOOK_SECONDS: Final = 5.0
_MOMENT: Final = 1.0
WHOLE: Final = Fraction(1)


def scale_card(card: Card, scaling: Fraction) -> Card:
    """The card with only so much of its memory, at least one MiB."""
    if scaling == WHOLE:
        return card
    memory = MiB(max(1, int(card.gpu.memory * scaling)))
    return replace(card, gpu=replace(card.gpu, memory=memory))


class CardWatch:
    """Follows the cards of one node; `cards` and `facts` are the newest, None before the first."""

    def __init__(
        self,
        driver: Driver,
        node: str,
        *,
        health: Health | None = None,
        scaling: Fraction = WHOLE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = driver
        self._node = node
        self._health = health or Health()
        self._scaling = scaling
        self._clock = clock
        self._notice = NodeNotice(node)
        self._failing: str | None = None
        self._listed: Hardware | None = None
        self.hardware: Hardware | None = None
        """What the driver listed, judged and scaled, in index order."""
        self.facts: NodeFacts | None = None
        """The same for publishing, with the cards that a person closed."""

    @property
    def cards(self) -> tuple[Card, ...]:
        """The cards as they are judged; none before the driver first answered."""
        return () if self.hardware is None else self.hardware.cards

    def resume(self, notice: NodeNotice) -> None:
        """Rest the cards that the Node says were ill before the agent was restarted."""
        text = notice.annotations.get(GPUS)
        try:
            published = () if text is None else read_gpus(self._node, text).gpus
        except (DialectError, InventoryError) as error:
            _log.warning("earlier health unknown error=%s", error)
            published = ()
        self._health.resume(published, self._clock())
        self.follow(notice)

    def follow(self, notice: NodeNotice) -> None:
        """Take over which cards a person has closed."""
        self._notice = notice
        if self._listed is not None:
            self._settle(self._listed)

    def look(self, faults: Sequence[Fault] = ()) -> NodeFacts:
        """Read and judge the cards now; blocks on the driver."""
        hardware = self._driver.hardware()
        now = self._clock()
        changes = self._health.hear(faults, hardware.cards, now)
        changes += self._health.judge(hardware.cards, now)
        self._log(changes, hardware.cards)
        self._listed = hardware
        return self._settle(hardware)

    async def run(
        self,
        tell: Callable[[NodeFacts], Awaitable[object]],
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """Look for ever, at once after a fault, and tell what was seen each time."""
        faults: Sequence[Fault] = ()
        while True:
            try:
                facts = await asyncio.to_thread(self.look, faults)
                self._recover()
                await tell(facts)
                faults = ()
                # Not before a moment has passed, for cards that need no rest are always due.
                pause = min(look_seconds, max(_MOMENT, self._health.due(self._clock())))
                faults = await asyncio.to_thread(self._driver.wait_faults, pause)
            except (DriverError, InventoryError) as error:
                self._fail(str(error))
                await asyncio.sleep(min(look_seconds, _MOMENT))

    def _settle(self, listed: Hardware) -> NodeFacts:
        cards = tuple(scale_card(card, self._scaling) for card in self._health.apply(listed.cards))
        node = Node(self._node, tuple(card.gpu for card in cards), listed.links)
        self.hardware = replace(listed, cards=cards)
        self.facts = NodeFacts(
            cordon_gpus(node, self._notice),
            tuple(card.capability for card in cards),
            listed.driver,
            listed.cuda,
            {card.gpu.uuid: card.trouble for card in cards if card.trouble},
        )
        return self.facts

    def _fail(self, problem: str) -> None:
        if problem != self._failing:
            self._failing = problem
            _log.error("cards unknown error=%s", problem)

    def _recover(self) -> None:
        if self._failing is not None:
            self._failing = None
            _log.info("cards known again node=%s", self._node)

    def _log(self, changes: Sequence[Change], cards: Sequence[Card]) -> None:
        indexes = {card.gpu.uuid: card.gpu.index for card in cards}
        for change in changes:
            phrase = "card returned" if change.healthy else "card unhealthy"
            index = indexes.get(change.uuid)
            _log.warning("%s gpu=%s uuid=%s: %s", phrase, index, change.uuid, change.reason)
