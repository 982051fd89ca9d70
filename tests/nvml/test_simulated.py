"""The simulated driver follows its file, and survives a broken one."""

import os
import threading

import pytest

from slicewise.nvml.driver import ECC, LOST, XID, DriverError, GpuFault
from slicewise.nvml.simulated import SimulatedDriver

_TWO = """
gpus:
  - {model: T4, memory: 15360, uuid: GPU-a, temperature: 40, power: 30000}
  - {model: A10, memory: 23028, uuid: GPU-b, minor: 3}
links: [{gpus: [0, 1], pcie: PHB}]
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "gpus.yaml"
    path.write_text(_TWO)
    return path


@pytest.fixture
def driver(path):
    driver = SimulatedDriver(path)
    yield driver
    driver.close()


def _rewrite(path, text: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    os.replace(draft, path)


def test_sample_has_four_linked_gpus():
    hardware = SimulatedDriver(name="n0").hardware()

    assert [device.gpu.index for device in hardware.gpus] == [0, 1, 2, 3]
    assert hardware.links is not None
    assert hardware.links.nvlinks[0] == (0, 12, 0, 0)
    assert hardware.links.pcie[0] == (0, 20, 50, 50)


def test_gpus_and_links_are_as_described(driver):
    hardware = driver.hardware()

    assert [(device.gpu.uuid, device.gpu.minor) for device in hardware.gpus] == [
        ("GPU-a", 0),
        ("GPU-b", 3),
    ]
    assert hardware.links is not None
    assert hardware.links.pcie == ((0, 30), (30, 0))


def test_rewritten_file_changes_loads(driver, path):
    _rewrite(path, _TWO.replace("temperature: 40", "used: 512, utilization: 20"))

    load = driver.loads()["GPU-a"]

    assert (load.memory, load.cores, load.temperature) == (512, 20, None)


def test_fault_is_reported_once_when_its_sequence_appears(driver, path):
    _rewrite(
        path, _TWO + "faults: [{sequence: 1, gpu: 1, xid: 79}, {sequence: 2, gpu: 0, ecc: true}]"
    )

    assert list(driver.wait_faults(0)) == [
        GpuFault("GPU-b", XID, 79),
        GpuFault("GPU-a", ECC, detail="double-bit ECC error"),
    ]
    assert list(driver.wait_faults(0)) == []


def test_faults_from_before_the_start_are_past(path):
    _rewrite(path, _TWO + "faults: [{sequence: 1, gpu: 1, xid: 79}]")

    assert list(SimulatedDriver(path).wait_faults(0)) == []


def test_fault_that_was_taken_out_may_be_injected_again(driver, path):
    for text in (_TWO + "faults: [{sequence: 1, gpu: 1, xid: 31}]", _TWO) * 2:
        _rewrite(path, text)
        found = list(driver.wait_faults(0))
        assert found == ([GpuFault("GPU-b", XID, 31)] if "faults" in text else [])


def test_waiting_ends_as_soon_as_a_fault_appears(driver, path):
    found = []
    waiting = threading.Thread(target=lambda: found.extend(driver.wait_faults(60)))
    waiting.start()

    _rewrite(path, _TWO + "faults: [{sequence: 1, gpu: 0, xid: 48}]")
    waiting.join(30)

    assert found == [GpuFault("GPU-a", XID, 48)]


def test_closing_ends_the_wait(path):
    driver = SimulatedDriver(path)
    waiting = threading.Thread(target=driver.wait_faults, args=(60,))
    waiting.start()

    driver.close()
    driver.close()
    waiting.join(30)

    assert not waiting.is_alive()


def test_lost_gpu_stays_listed_as_unhealthy_with_its_links(driver, path):
    before = driver.hardware()
    _rewrite(path, _TWO.replace("minor: 3", "minor: 3, lost: true"))

    after = driver.hardware()

    assert [(device.gpu.uuid, device.gpu.healthy) for device in after.gpus] == [
        ("GPU-a", True),
        ("GPU-b", False),
    ]
    assert after.gpus[1].trouble == "lost"
    assert after.links == before.links
    assert set(driver.loads()) == {"GPU-a"}
    assert list(driver.wait_faults(0)) == [GpuFault("GPU-b", LOST, detail="no longer answers")]


def test_gpu_that_answers_again_is_healthy_again(driver, path):
    driver.hardware()
    _rewrite(path, _TWO.replace("minor: 3", "minor: 3, lost: true"))
    driver.hardware()
    _rewrite(path, _TWO)

    assert [device.gpu.healthy for device in driver.hardware().gpus] == [True, True]


def test_gpu_lost_before_it_was_ever_seen_is_not_listed(path):
    _rewrite(path, _TWO.replace("minor: 3", "minor: 3, lost: true"))

    assert [device.gpu.uuid for device in SimulatedDriver(path).hardware().gpus] == ["GPU-a"]


def test_vanished_gpu_gives_way_to_the_gpu_that_has_its_index_now(driver, path):
    driver.hardware()
    _rewrite(path, "gpus: [{model: A10, memory: 23028, uuid: GPU-b, minor: 3}]")

    gpus = driver.hardware().gpus

    assert [(device.gpu.index, device.gpu.uuid) for device in gpus] == [(0, "GPU-b")]


def test_gpu_that_needs_a_reset_is_unhealthy(driver, path):
    _rewrite(path, _TWO.replace("minor: 3", "minor: 3, recovery: reset"))

    device = driver.hardware().gpus[1]

    assert (device.gpu.healthy, device.trouble) == (False, "needs a reset")


def test_broken_file_is_reported_once_and_the_last_good_state_stays(driver, path, caplog):
    before = driver.hardware()
    _rewrite(path, "gpus: [{model: 1")

    assert driver.hardware() == driver.hardware() == before
    assert driver.problem is not None
    assert len([record for record in caplog.records if str(path) in record.getMessage()]) == 1

    _rewrite(path, _TWO)
    driver.hardware()
    assert driver.problem is None


def test_removed_file_is_a_problem_and_not_the_end(driver, path):
    before = driver.hardware()
    path.unlink()

    assert driver.hardware() == before
    assert "No such file" in str(driver.problem)


def test_missing_file_at_the_start_is_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(DriverError, match=r"cannot read .*none\.yaml.*describes GPUs"):
        SimulatedDriver(tmp_path / "none.yaml")


def test_unavailable_driver_answers_nothing_until_it_is_back(driver, path):
    _rewrite(path, _TWO + "unavailable: true")
    with pytest.raises(DriverError, match="does not answer"):
        driver.loads()

    _rewrite(path, _TWO)
    assert len(driver.hardware().gpus) == 2
