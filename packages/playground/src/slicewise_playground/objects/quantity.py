"""Kubernetes quantities: the one canonical spelling of each amount.

The API server rewrites every amount it stores: 1000 becomes 1k, 0.5 becomes 500m, 1024Mi 1Gi.
"""

from fractions import Fraction
from functools import lru_cache

from slicewise.model import QuantityError
from slicewise.model.quantity import parse_quantity

BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


@lru_cache(maxsize=4096)
def parse(text: str) -> Fraction:
    """The exact amount."""
    return _split(text)[0]


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The spelling that the API server stores."""
    amount, style = _split(text)
    if style == "binary":
        return _binary(amount)
    # Nothing smaller than a billionth is kept, and it rounds away from zero.
    nanos = _round_up(amount * 10**9)
    if nanos == 0:
        return "0"
    exponent = -9
    while nanos % 1000 == 0 and exponent < 18:
        nanos //= 1000
        exponent += 3
    if style == "exponent":
        return f"{nanos}e{exponent}" if exponent else str(nanos)
    return f"{nanos}{_suffix(exponent)}"


@lru_cache(maxsize=4096)
def round_up(text: str) -> str:
    """The canonical spelling in whole thousandths, as lists of resources are kept."""
    amount, _ = _split(text)
    if (amount * 1000).denominator == 1:
        return canonical(text)
    return canonical(f"{_round_up(amount * 1000)}m")


def _split(text: str) -> tuple[Fraction, str]:
    """The amount and the family of its suffix."""
    try:
        amount = parse_quantity(text)
    except QuantityError as error:
        raise QuantityError(f"quantity {error}") from None
    suffix = text.lstrip("+-.0123456789")
    if suffix in BINARY:
        return amount, "binary"
    return amount, "decimal" if suffix in DECIMAL else "exponent"


def _binary(amount: Fraction) -> str:
    """A binary amount; below 1024, or with a fraction, it is spelled in decimals."""
    if -1024 < amount < 1024 or amount.denominator != 1:
        return canonical(_plain(amount))
    value = int(amount)
    shift = 0
    while value % 1024 == 0 and shift < 60:
        value //= 1024
        shift += 10
    suffix = {power: name for name, power in BINARY.items()}.get(shift, "")
    return f"{value}{suffix}"


def _plain(amount: Fraction) -> str:
    """The amount in billionths, as text."""
    return f"{_round_up(amount * 10**9)}n"


def _round_up(amount: Fraction) -> int:
    """The next integer away from zero."""
    quotient = abs(amount).__ceil__()
    return quotient if amount >= 0 else -quotient


def _suffix(exponent: int) -> str:
    """The decimal suffix of a power of ten."""
    return {power: name for name, power in DECIMAL.items()}[exponent]
