"""What a description file may say, and how a wrong one is refused."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicewise.model import MiB, Percent
from slicewise.nvml.description import read_description
from slicewise.nvml.driver import DriverError, Process
from slicewise.nvml.known_gpus import LinkDistance, Pair

_TWO = "gpus: [{model: T4, memory: 15360}, {model: A10, memory: 23028, minor: 7}]"


def _read(text: str, name: str = ""):
    return read_description("gpus.yaml", text.encode(), name)


def test_index_is_the_position_and_minor_may_differ():
    gpus = [each.device.gpu for each in _read(_TWO).gpus]

    assert [(gpu.index, gpu.minor, gpu.model) for gpu in gpus] == [(0, 0, "T4"), (1, 7, "A10")]


def test_json_is_read_like_yaml():
    text = json.dumps({"gpus": [{"model": "T4", "memory": 15360}]})

    assert _read(text) == _read("gpus: [{model: T4, memory: 15360}]")


def test_count_repeats_a_gpu_under_its_own_numbers():
    text = """
    gpus:
      - {model: T4, memory: 1, count: 2, index: 1, minor: 5}
      - {model: A10, memory: 1, index: 0, minor: 9}
    """

    gpus = _read(text).gpus

    numbers = [(each.device.gpu.index, each.device.gpu.minor) for each in gpus]
    assert numbers == [(0, 9), (1, 5), (2, 6)]
    assert len({each.device.gpu.uuid for each in gpus}) == 3


def test_switched_lanes_join_every_two_gpus():
    text = """
    gpus: [{model: A100, memory: 1, count: 8}]
    links: [{gpus: [0, 1, 2, 3, 4, 5, 6, 7], nvlinks: 12, pcie: NODE, switched: true}]
    """

    assert set(_read(text).pairs.values()) == {LinkDistance(12, 40)}


def test_invented_uuids_are_stable_and_differ_between_nodes():
    first, again, other = _read(_TWO, "a"), _read(_TWO, "a"), _read(_TWO, "b")

    assert first == again
    assert first.gpus[0].device.gpu.uuid != other.gpus[0].device.gpu.uuid


def test_load_sums_processes_where_the_gpu_says_nothing():
    text = """
    gpus:
      - model: T4
        memory: 15360
        processes: [{pid: 9, memory: 100, utilization: 70}, {pid: 3, memory: 50, utilization: 60}]
    """

    load = _read(text).gpus[0].load

    assert (load.memory, load.cores) == (MiB(150), Percent(100))
    assert [process.pid for process in load.processes] == [3, 9]
    assert load.processes[0] == Process(3, MiB(50), Percent(60))


def test_gpus_of_one_numa_node_are_nearer_than_strangers():
    text = """
    gpus:
      - {model: T4, memory: 1, numa: 0, count: 2}
      - {model: T4, memory: 1, numa: 1}
    links:
      - {gpus: [1, 2], nvlinks: 4, pcie: PXB}
    """

    described = _read(text)

    uuids = [each.device.gpu.uuid for each in described.gpus]
    pairs = [described.pairs[Pair((uuids[a], uuids[b]))] for a, b in ((0, 1), (0, 2), (1, 2))]
    assert pairs == [LinkDistance(0, 40), LinkDistance(0, 50), LinkDistance(4, 20)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("gpus: [{model: T4}]", "memory", id="missing-memory"),
        pytest.param("gpus: [{model: T4, memory: 1, lots: 2}]", "lots", id="unknown-field"),
        pytest.param("gpus: [", "gpus.yaml", id="not-yaml"),
        pytest.param("gpus: [{model: T4, memory: 0}]", "memory=0", id="no-memory"),
        pytest.param(
            "gpus: [{model: a, memory: 1}, {model: a, memory: 1, index: 0}]", "twice", id="twice"
        ),
        pytest.param("gpus: [{model: a, memory: 1, minor: -1}]", "minor", id="below-zero"),
        pytest.param("gpus: [{model: a, memory: 1, index: 1}]", "from 0 to 0", id="gap"),
        pytest.param(
            "gpus: [{model: a, memory: 1, count: 8}]\n"
            "links: [{gpus: [0, 1, 2, 3, 4, 5, 6, 7], nvlinks: 12}]",
            "84 lanes",
            id="more-lanes-than-a-gpu-has",
        ),
        pytest.param("gpus: [{model: a, memory: 1, count: 0}]", "count=0", id="count-zero"),
        pytest.param(
            "gpus: [{model: a, memory: 1, count: 2, uuid: GPU-1}]", "count=2", id="count-and-uuid"
        ),
        pytest.param("gpus: [{model: a, memory: 1, used: 2}]", "used=2", id="more-than-there-is"),
        pytest.param(
            f"{_TWO}\nfaults: [{{sequence: 1, gpu: 5, xid: 79}}]", "gpu=5", id="fault-of-no-gpu"
        ),
        pytest.param(f"{_TWO}\nfaults: [{{sequence: 1, gpu: 0}}]", "xid or ecc", id="no-fault"),
        pytest.param(f"{_TWO}\nlinks: [{{gpus: [0, 9]}}]", r"links\[0\]", id="link-to-no-gpu"),
    ],
)
def test_wrong_description_is_refused_with_file_and_field(text, message):
    with pytest.raises(DriverError, match=message) as caught:
        _read(text)

    assert str(caught.value).startswith("gpus.yaml: ")


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_driver_error(text):
    with suppress(DriverError):
        assert read_description("gpus.yaml", text).gpus is not None


def test_description_in_the_documentation_can_be_read():
    page = Path(__file__).parents[2] / "docs" / "agent.md"
    text = page.read_text().split("```yaml\ndriver:")[1].split("```")[0]

    described = _read("driver:" + text)

    assert [each.device.gpu.minor for each in described.gpus] == [0, 1, 7]
    assert [fault.xid for fault in described.faults] == [79]
