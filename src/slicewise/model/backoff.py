"""Exponential backoff with jitter: how long to wait before the next attempt.

Jitter keeps clients that failed together from coming back together.
"""

from dataclasses import dataclass

# Failures can go on for days, and a float holds only so many doublings.
_MOST_DOUBLINGS = 20


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double from the first up to the longest, each shortened by up to half."""

    first: float = 0.2
    """Seconds before the first retry, at most."""
    longest: float = 30.0
    """Seconds that no delay exceeds."""

    def delay(self, attempt: int, fraction: float, retry_after: float | None = None) -> float:
        """Seconds to wait after this many failures, at least what the server asked for.

        `fraction` is the jitter, random from 0 to 1: half of the delay, up to all of it.
        """
        doublings = min(max(attempt, 1) - 1, _MOST_DOUBLINGS)
        full = min(self.longest, self.first * float(1 << doublings))
        drawn = full * (1 + fraction) / 2
        return drawn if retry_after is None else max(drawn, min(retry_after, self.longest))
