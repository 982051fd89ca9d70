"""Kubernetes quantities as integers: `1k`, `2Gi` and `1e3` read, `500m` of a GPU refused.

The API server rewrites what users wrote (1000 comes back as `1k`), so every form must read.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from slicewise.model.amounts import MilliCpu
from slicewise.model.errors import QuantityError

Quantity = str | int

_FORM: Final = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:([eE][+-]?\d{1,3})|([a-zA-Z]{0,2}))")
_SUFFIXES: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
# Kubernetes itself keeps quantities below 2**63.
_LIMIT: Final = 2**63 - 1


def read_count(field: str, value: Quantity) -> int:
    """A whole, non-negative number of things, as extended resources must be."""
    # Nearly every amount is plain digits, and pods are read far more often than written.
    if type(value) is str and value.isascii() and value.isdigit() and len(value) <= 18:
        return int(value)
    exact = _read_exact(field, value)
    if exact.denominator != 1:
        raise QuantityError(f"{field}={value}: expected a whole number")
    return exact.numerator


def find_count(value: Quantity | None) -> int | None:
    """The same where nothing depends on it being right: None if it is absent or unreadable."""
    try:
        return None if value is None else read_count("", value)
    except QuantityError:
        return None


def read_milli_cpu(field: str, value: Quantity) -> MilliCpu:
    """Thousandths of a core, rounded up as the kubelet does."""
    exact = _read_exact(field, value)
    return MilliCpu(-(-exact.numerator * 1000 // exact.denominator))


def read_bytes(field: str, value: Quantity) -> int:
    """Bytes of host memory, rounded up to a whole byte."""
    exact = _read_exact(field, value)
    return -(-exact.numerator // exact.denominator)


def _read_exact(field: str, value: Quantity) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise QuantityError(f"{field}={value!r}: expected a quantity like 2, 1k or 2Gi")
    try:
        return _parse(str(value))
    except QuantityError as error:
        raise QuantityError(f"{field}={error}") from None


def parse_quantity(text: str) -> Fraction:
    """The exact amount, whatever its sign and size."""
    form = _FORM.fullmatch(text) if len(text) <= 64 else None
    if form is None:
        raise QuantityError(f"{text[:64]!r}: expected a quantity like 2, 1k or 2Gi")
    sign, digits, exponent, suffix = form.groups()
    if exponent:
        scale = Fraction(10) ** int(exponent[1:])
    elif (suffix or "") in _SUFFIXES:
        scale = _SUFFIXES[suffix or ""]
    else:
        raise QuantityError(f"{text!r}: unknown suffix {suffix!r}")
    exact = Fraction(digits) * scale
    return -exact if sign == "-" else exact


# Clusters repeat few amounts on many pods.
@lru_cache(maxsize=4096)
def _parse(text: str) -> Fraction:
    exact = parse_quantity(text)
    if exact < 0:
        raise QuantityError(f"{text}: expected no negative amount")
    if exact > _LIMIT:
        raise QuantityError(f"{text}: expected less than 2^63")
    return exact
