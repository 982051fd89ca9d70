"""Selectors of claims, evaluated on devices as Kubernetes does."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicewise.explain.cel.functions import CelError, CelSyntaxError
from slicewise.explain.cel.parser import MAX_LETTERS, parse
from slicewise.explain.device_selectors import UnknownNameError, find_fault, matches
from slicewise.model.claim import OfferedDevice, SemanticVersion

OURS = 'device.attributes["gpu.slicewise.io"]'
ROOM = 'device.capacity["gpu.slicewise.io"]'
DEVICE = OfferedDevice(
    "n0", "gpu-0", 100, 40960, 100, 40960,
    {
        "productName": "NVIDIA A100-SXM4-40GB",
        "index": 3,
        "ecc": True,
        "driverVersion": SemanticVersion("580.95.5"),
        "resource.kubernetes.io/pciBusID": "0000:01:00.0",
    },
    {"memory": "40Gi", "cores": "100"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ('device.driver == "gpu.slicewise.io"', True),
        ("device.driver != 'gpu.slicewise.io'", False),
        (f'{OURS}.productName.lowerAscii().contains("a100")', True),
        (f'{OURS}["productName"].startsWith("Tesla")', False),
        (f'{OURS}.productName.matches("^NVIDIA A[0-9]+-")', True),
        (f'{OURS}.productName.matches("(T4|L40)$")', False),
        (f"{OURS}.index < 4 && {OURS}.index >= 3", True),
        (f"{OURS}.index in [1, 2]", False),
        (f"{OURS}.index == 3.0", True),
        (f'{OURS}.index == "3"', False),
        (f"{OURS}.ecc && !({OURS}.index == 4)", True),
        (f"{OURS}.ecc == false || {OURS}.index % 2 == 1", True),
        (f'{OURS}.index > 2 ? {OURS}.ecc : device.driver == "x"', True),
        (f'{ROOM}.memory.compareTo(quantity("30Gi")) >= 0', True),
        (f'{ROOM}.memory.isLessThan(quantity("40960Mi"))', False),
        (f'{ROOM}.memory == quantity("40960Mi")', True),
        (f'{ROOM}.cores.isGreaterThan(quantity("99"))', True),
        (f'{OURS}.driverVersion.isGreaterThan(semver("580.95.4"))', True),
        (f'{OURS}.driverVersion.compareTo(semver("580.100.0")) < 0', True),
        ('semver("1.0.0-rc.1").isLessThan(semver("1.0.0"))', True),
        ('semver("1.0.0-rc.2").isLessThan(semver("1.0.0-rc.10"))', True),
        (f"{OURS}.driverVersion.major() == 580", True),
        (f"has({OURS}.nvlinkGroup)", False),
        (f"has({OURS}.productName) && {OURS}.productName.size() > 3", True),
        (f'"productName" in {OURS}', True),
        ('"x" in device.attributes["other.io"]', False),
        ('device.attributes["resource.kubernetes.io"].pciBusID.endsWith(":00.0")', True),
        (f'{OURS}.?nvlinkGroup.orValue("none") == "none"', True),
        (f'{OURS}[?"productName"].hasValue()', True),
        (f'{OURS}.?productName.orValue("").contains("A100")', True),
        (f'{OURS}.nvlinkGroup == "a" || {OURS}.ecc', True),
        (f'{OURS}.nvlinkGroup == "a" && !{OURS}.ecc', False),
        (f"cel.bind(a, {OURS}, a.ecc && a.index == 3)", True),
        (f'["A100", "H100"].exists(m, {OURS}.productName.contains(m))', True),
        (f'["A100", "H100"].all(m, {OURS}.productName.contains(m))', False),
        ("[1, 2, 3].map(n, n * 2).filter(n, n > 2) == [4, 6]", True),
        ("-7 / 2 == -3 && -7 % 2 == -1 && 2 + 3 * 4 == 14", True),
        ('"a" + "b" == "ab" && "a" < "b" // words', True),
        (r'"\u0041\x42\n" == "AB\n" && r"\d" == "\\d"', True),
    ],
)
def test_expression_chooses_the_device_or_not(expression, chosen):
    assert matches(expression + "\n", DEVICE) is chosen


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("device.unheard(1)", "'unheard()' is not understood"),
        ("pod.name == 'x'", "'pod' is not understood"),
        ('ip("1.2.3.4").family() == 4', "'ip()' is not understood"),
        ("device.driver ==", "'the end' is not understood"),
        ("{'a': 1}['a'] == 1", "letter 1: not understood"),
        (f"{OURS}.productName > 3", "no order"),
        (f"{OURS}.index", "expected true or false"),
        (f'{OURS}.productName.matches("(a+)+$")', "repeated groups"),
        (f'{OURS}.productName.matches("a*b*c*d*")', "two repetitions"),
        (f'{OURS}.productName.contains("a", "b")', "wrong arguments"),
        ("1 / 0 == 1", "division"),
        ("(" * 60 + "true" + ")" * 60, "nested deeper"),
        ("9223372036854775807 + 1 > 0", "too large"),
    ],
)
def test_what_is_not_known_is_not_evaluated_and_named(expression, words):
    assert matches(expression, DEVICE) is None
    assert words in find_fault(expression, DEVICE)


def test_missing_name_is_told_with_those_there_are():
    with pytest.raises(
        UnknownNameError, match=r"product: the GPUs have driverVersion, .*productName"
    ):
        matches(f'{OURS}.product == "a"', DEVICE)


def test_devices_that_differ_in_what_is_read_are_judged_each_by_itself():
    def make(index, name):
        facts = {"index": index, "productName": name}
        return OfferedDevice("n0", f"gpu-{index}", 100, 1, 100, 1, facts)

    word = f'{OURS}.productName == "A" ? {OURS}.index < 2 : true'

    assert [matches(word, make(*each)) for each in ((0, "A"), (1, "A"), (2, "A"), (5, "B"))] == [
        True,
        True,
        False,
        True,
    ]


def test_no_expression_takes_long():
    lists = "[1,1,1,1,1,1,1,1,1,1]"
    loops = "".join(f"{lists}.exists(v{at}, " for at in range(12)) + "false" + ")" * 12
    started = time.monotonic()

    assert matches(loops, DEVICE) is None
    assert "steps" in find_fault(loops, DEVICE)
    with pytest.raises(CelSyntaxError, match="letters"):
        parse("true || " * MAX_LETTERS + "true")
    assert matches(" + ".join(["1"] * 2000) + " > 0", DEVICE) is None
    assert time.monotonic() - started < 2


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [OURS, ROOM, ".index", ".memory", "(", ")", "[", "]", "&&", "||", "!", "-", "1", '"a"',
             "==", "<", "in", "?", ":", ".?", "orValue(1)", ".size()", "has(", "quantity(", ",",
             ".matches(", ".exists(x,", "x", "true", "\\", "'"]
        ),
        max_size=14,
    ).map(" ".join)
)  # fmt: skip
def test_any_text_is_evaluated_or_refused_and_nothing_else(text):
    try:
        parse(text).evaluate({"device": {"attributes": {"gpu.slicewise.io": {"index": 1}}}})
    except (CelSyntaxError, CelError):
        return
    assert matches(text, DEVICE) in (True, False, None)
