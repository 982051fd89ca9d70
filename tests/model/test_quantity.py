import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicewise.model import QuantityError, find_count, read_bytes, read_count, read_milli_cpu


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (3, 3),
        ("3", 3),
        ("0", 0),
        ("1k", 1000),
        ("2Gi", 2 * 2**30),
        ("1e3", 1000),
        ("1E3", 1000),
        ("2E", 2 * 10**18),
        ("0.5k", 500),
        ("1000m", 1),
        ("+7", 7),
        ("-0", 0),
        (".5Ki", 512),
        ("1.", 1),
        ("007", 7),
    ],
)
def test_every_form_of_a_whole_amount_reads(value, count):
    assert read_count("r", value) == count


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("500m", "r=500m: expected a whole number"),
        ("0.5", "r=0.5: expected a whole number"),
        ("-3", "r=-3: expected no negative amount"),
        (-3, "r=-3: expected no negative amount"),
        ("16E", "r=16E: expected less than 2"),
        ("1e400", "r=1e400: expected less than 2"),
        ("9" * 19 + "9", "expected less than 2"),
        ("3GB", "r='3GB': unknown suffix 'GB'"),
        ("", "r='': expected a quantity"),
        ("three", "r='three': expected a quantity"),
        ("1 ", "r='1 ': expected a quantity"),
        ("1" * 65, "expected a quantity"),
        (True, "r=True: expected a quantity"),
        (1.5, "r=1.5: expected a quantity"),
        (None, "r=None: expected a quantity"),
    ],
)
def test_other_amounts_are_named_with_their_field(value, message):
    with pytest.raises(QuantityError) as error:
        read_count("r", value)

    assert message in str(error.value)


def test_cpu_is_rounded_up_to_thousandths():
    assert read_milli_cpu("cpu", "0.0001") == 1
    assert read_milli_cpu("cpu", "1500m") == 1500
    assert read_milli_cpu("cpu", 2) == 2000


def test_memory_is_rounded_up_to_bytes():
    assert read_bytes("memory", "1.5Ki") == 1536
    assert read_bytes("memory", "1m") == 1


@given(st.integers(0, 2**63 - 1))
def test_plain_numbers_read_as_themselves(number):
    assert read_count("r", str(number)) == read_count("r", number) == number


@given(st.text(max_size=70) | st.from_regex(r"[+-]?[0-9.]{1,6}[a-zA-Z]{0,2}[0-9]{0,3}"))
def test_any_text_reads_or_is_a_quantity_error(text):
    try:
        outcome = f"r={read_count('r', text)}"
    except QuantityError as error:
        outcome = str(error)

    assert outcome.startswith("r=")
    assert not outcome.startswith("r=-") or "expected" in outcome


@pytest.mark.parametrize(
    ("value", "count"), [("1k", 1000), (None, None), ("500m", None), ("-1", None), ("many", None)]
)
def test_count_that_is_absent_or_unreadable_is_not_found(value, count):
    assert find_count(value) == count
