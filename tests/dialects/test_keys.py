from dataclasses import fields, is_dataclass
from importlib import import_module
from pkgutil import walk_packages

import pytest

import slicewise.dialects
from slicewise.dialects import ALLOCATION, DEFAULT, GPUS

MODULES = [
    import_module(each.name)
    for each in walk_packages(slicewise.dialects.__path__, "slicewise.dialects.")
    if each.name.endswith((".node", ".pods", ".agent", ".inventory"))
]


def spoken():
    """Every text in a dialect's constants and editions that looks like a Kubernetes key."""
    for module in MODULES:
        for name, value in vars(module).items():
            if not name.startswith("__"):
                yield from keys_in(value)


def keys_in(value):
    if isinstance(value, str) and ("/" in value or value.startswith("ALIYUN")) and " " not in value:
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from keys_in(each)
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from keys_in(getattr(value, each.name, None))


@pytest.mark.parametrize("key", sorted({*spoken(), ALLOCATION, GPUS}))
def test_every_key_a_dialect_reads_is_kept(key):
    assert key.startswith(DEFAULT.keys)


def test_every_resource_and_the_host_amounts_are_kept():
    assert all(name.startswith(DEFAULT.amounts) for name in (*DEFAULT.resources, "cpu", "memory"))
