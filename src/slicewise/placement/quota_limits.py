"""What a namespace may still use under its quota."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """GPU models with quota left for this pod, and pools it may go to; None is no limit."""

    models: frozenset[str] | None = None
    pools: frozenset[str] | None = None
    detail: str = ""


UNLIMITED: Final = QuotaLimits()
