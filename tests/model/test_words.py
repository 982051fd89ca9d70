import pytest

from slicewise.model import count, how_many, model_admitted, model_matches, split_words

A100 = "NVIDIA A100-SXM4-40GB"
RTX = "NVIDIA GeForce RTX 3090"


@pytest.mark.parametrize(
    ("model", "wanted", "found"),
    [
        (A100, "a10", False),
        (A100, "a100", True),
        (A100, "A100-SXM4", True),
        (A100, "a100 sxm4 40gb", True),
        (A100, "a100-40gb", False),
        (A100, "100", False),
        ("NVIDIA A10", "a10", True),
        ("NVIDIA A10G", "a10", False),
        (RTX, "3090", True),
        (RTX, "rtx 3090", True),
        (RTX, "RTX-3090", True),
        (RTX, "geforce 3090", False),
        (RTX, "nvidia geforce rtx 3090 ti", False),
        ("Tesla T4", "tesla-t4", True),
        (A100, "", False),
        (A100, "--", False),
        ("", "a100", False),
    ],
)
def test_model_is_found_by_whole_words_side_by_side(model, wanted, found):
    assert model_matches(model, wanted) is found


@pytest.mark.parametrize(
    ("wanted", "refused", "admitted"),
    [
        ([], [], True),
        (["t4", "a100"], [], True),
        (["t4"], [], False),
        ([], ["a100"], False),
        (["a100"], ["40gb"], False),
        (["a100"], ["a10"], True),
    ],
)
def test_model_needs_one_wanted_name_and_no_refused_one(wanted, refused, admitted):
    assert model_admitted(A100, wanted, refused) is admitted


def test_words_are_lower_case_letters_and_digits():
    assert split_words("NVIDIA A100-SXM4-40GB") == ("nvidia", "a100", "sxm4", "40gb")


@pytest.mark.parametrize(
    ("number", "noun", "plural", "text"),
    [
        (0, "GPU", None, "0 GPUs"),
        (1, "GPU", None, "1 GPU"),
        (3, "GPU", None, "3 GPUs"),
        (2, "policy", "policies", "2 policies"),
    ],
)
def test_counts_have_the_right_plural(number, noun, plural, text):
    assert count(number, noun, plural) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "none is free"), (1, "1 is free"), (2, "2 are free")]
)
def test_how_many_are_so_agrees_with_the_number(number, text):
    assert how_many(number, "free") == text
