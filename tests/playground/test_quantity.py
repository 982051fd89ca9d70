from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicewise_playground.objects.quantity import QuantityError, canonical, parse, round_up

SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1", Fraction(1)),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("1.", Fraction(1)),
        ("-2k", Fraction(-2000)),
        ("100m", Fraction(1, 10)),
        ("2Ki", Fraction(2048)),
        ("1e3", Fraction(1000)),
        ("1E3", Fraction(1000)),
        ("1E", Fraction(10**18)),
        ("5e-1", Fraction(1, 2)),
    ],
)
def test_amount_is_read_exactly(text, amount):
    assert parse(text) == amount


@pytest.mark.parametrize("text", ["", "k", "1Kb", "1 Gi", "--1", "1e", "0x10", "1.2.3", "ten"])
def test_text_that_is_no_amount_is_named(text):
    with pytest.raises(QuantityError, match=f"quantity {text!r}"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "spelled"), [("0.0001", "1m"), ("1.0001", "1001m"), ("1500u", "2m"), ("1k", "1k")]
)
def test_lists_of_resources_keep_thousandths(text, spelled):
    assert round_up(text) == spelled


@given(st.integers(-(10**6), 10**6), st.integers(0, 999), st.sampled_from(SUFFIXES))
def test_spelling_keeps_amounts_of_a_billionth_or_more(whole, part, suffix):
    text = f"{whole}.{part:03d}{suffix}"
    amount = parse(text)

    spelled = canonical(text)

    if (amount * 10**9).denominator == 1:
        assert parse(spelled) == amount
    assert canonical(spelled) == spelled
