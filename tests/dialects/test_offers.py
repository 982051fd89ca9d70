import hashlib

import pytest

import builders
from slicewise.dialects import DEFAULT, build_dialects
from slicewise.dialects.elastic.agent import hash_ids
from slicewise.dialects.shared.offers import count_lengths, name_units, write_short
from slicewise.model import Container, DialectError, MiB

EVERY = (
    "slicewise", "tkestack", "tkestack-upstream", "gpushare", "elastic", "elastic-com",
    "elastic-percent", "nano", "nano-percent", "nvidia",
)  # fmt: skip


def resources(*names, dialects=DEFAULT):
    return {
        each.name: each for edition in dialects.find_editions(names) for each in edition.resources
    }


def units(resource, gpus=2, memory=2048):
    node = builders.node(gpus=gpus, memory=memory)
    return [name for name, _ in name_units(resource, node.gpus)]


@pytest.mark.parametrize(
    ("edition", "sockets"),
    [
        ("tkestack", {"nvidia.com/vcuda-core": "vcore.sock",
                      "nvidia.com/vcuda-memory": "vmemory.sock"}),
        ("gpushare", {"aliyun.com/gpu-mem": "aliyungpushare.sock"}),
        ("elastic", {"elasticgpu.io/gpu-core": "elastic-gpushare-core.sock",
                     "elasticgpu.io/gpu-memory": "elastic-gpushare-mem.sock"}),
        ("elastic-percent", {"elastic-gpu/gpu-percent": "elastic-gpu.sock"}),
    ],
)  # fmt: skip
def test_sockets_have_the_names_their_systems_know(edition, sockets):
    assert {name: each.socket for name, each in resources(edition).items()} == sockets


def test_no_two_resources_share_a_socket():
    sockets = [each.socket for each in resources(*EVERY).values()]

    assert len(set(sockets)) == len(sockets) == 17


@pytest.mark.parametrize(
    ("edition", "resource", "count"),
    [
        ("tkestack", "nvidia.com/vcuda-core", 200),
        ("tkestack", "nvidia.com/vcuda-memory", 4096),
        ("tkestack-upstream", "tencent.com/vcuda-memory", 16),
        ("gpushare", "aliyun.com/gpu-mem", 4),
        ("elastic", "elasticgpu.io/gpu-memory", 4096),
        ("nvidia", "nvidia.com/gpu", 2),
        ("slicewise", "slicewise.io/gpu", 2),
        ("slicewise", "slicewise.io/cores", 200),
    ],
)
def test_gpus_make_as_many_units_as_their_system_counts(edition, resource, count):
    names = units(resources(edition)[resource])

    assert len(set(names)) == len(names) == count


def test_gpushare_counts_whole_gib_of_each_gpu_and_mib_when_told():
    assert len(units(resources("gpushare")["aliyun.com/gpu-mem"], 2, 23028)) == 2 * 22
    mib = resources("gpushare", dialects=build_dialects(MiB(1)))["aliyun.com/gpu-mem"]
    assert len(units(mib, 2, 23028)) == 2 * 23028


def test_elastic_ids_and_hash_are_the_originals():
    names = units(resources("elastic")["elasticgpu.io/gpu-core"])

    assert (names[0], names[99], names[100]) == ("0-00", "0-99", "1-00")
    assert hash_ids(names[:3]) == "b85df0ed"
    assert hash_ids(names) == "22eaa44e"
    assert hash_ids([f"0-{at:02}" for at in range(256)]) == "74353848"


def test_ids_of_no_two_elastic_resources_are_equal():
    editions = ("elastic", "elastic-com", "elastic-percent", "nano", "nano-percent")
    names = [name for each in resources(*editions).values() for name in units(each)]

    assert len(set(names)) == len(names)


def test_short_numbers_are_unlike_each_other_and_short():
    assert [write_short(at) for at in (0, 35, 36, 46655)] == ["0", "z", "10", "zzz"]
    assert len({write_short(at) for at in range(50000)}) == 50000


def test_container_receives_its_gpus_through_the_first_resource_it_asks_for():
    (own,) = DEFAULT.find_editions(["slicewise"])
    (fork,) = DEFAULT.find_editions(["tkestack"])

    def carrier(edition, **limits):
        return edition.carrier(Container("c", limits=limits))

    assert (
        carrier(own, **{"slicewise.io/memory": 1, "slicewise.io/cores": 5}) == "slicewise.io/cores"
    )
    assert carrier(own, **{"slicewise.io/memory": 1}) == "slicewise.io/memory"
    assert carrier(fork, **{"nvidia.com/vcuda-memory": 1}) is None


def test_unknown_dialect_is_named_with_those_there_are():
    with pytest.raises(DialectError, match="dialect 'gpushar': expected slicewise, tkestack"):
        DEFAULT.find_editions(["gpushar"])


def test_hash_is_of_sorted_ids():
    assert hash_ids(["b", "a"]) == hashlib.sha256(b"a:b").hexdigest()[:8]


@pytest.mark.parametrize("memory", [1, 17, 18, 19, 648, 700, 24576])
def test_lengths_are_counted_as_if_every_id_were_made(memory):
    gpus = builders.node(gpus=2, memory=memory).gpus
    for each in resources(*EVERY).values():
        made = [len(name) for name, _ in name_units(each, gpus)]

        assert count_lengths(each, gpus) == {length: made.count(length) for length in set(made)}
