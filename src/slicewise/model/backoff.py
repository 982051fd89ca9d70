"""How long to wait before trying again: doubling, with chance, so that clients do not march."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from the first to the most, each drawn from its upper half."""

    first: float = 0.2
    """Seconds of the first pause, at most."""
    most: float = 30.0
    """Seconds no pause exceeds."""

    def pause(self, failures: int, chance: Random, retry_after: float | None = None) -> float:
        """Seconds to wait after so many failures in a row; never less than the server asked."""
        # The power is bounded because failures can go on for days.
        full = min(self.most, self.first * float(1 << min(max(failures, 1) - 1, 20)))
        drawn = full * (0.5 + chance.random() / 2)
        return drawn if retry_after is None else max(drawn, min(retry_after, self.most))
