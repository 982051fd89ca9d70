"""NVIDIA's bindings over the C library say what the simulated driver says of the same machine."""

import os
import subprocess
import sys
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slicewise.nvml.driver import ECC, LOST, XID, DriverError, GpuFault
from slicewise.nvml.library import LibraryDriver

_MIXED = """
driver: 570.124.06
cuda: "12.8"
gpus:
  - model: NVIDIA A100-SXM4-80GB
    memory: 81920
    minor: 3
    uuid: GPU-a
    bus: "00000000:C1:00.0"
    numa: 1
    brand: 14
    capability: 80
    temperature: 55
    power: 61234
    processes:
      - {pid: 4242, memory: 2048, utilization: 30}
      - {pid: 17, memory: 100, utilization: 5, graphics: true}
  - {model: NVIDIA A10, memory: 23028, minor: 0, uuid: GPU-b, numa: 0, capability: 86}
  - {model: NVIDIA B200, memory: 183359, minor: 1, uuid: GPU-c, capability: 100, mig: true}
  - {model: Tesla T4, memory: 15360, minor: 2, uuid: GPU-d, used: 77, utilization: 3}
links:
  - {gpus: [0, 1], nvlinks: 4, pcie: PXB}
  - {gpus: [1, 2], pcie: PHB}
  - {gpus: [0, 3], pcie: BOARD}
"""
_SWITCHED = """
gpus: [{model: NVIDIA H100, memory: 81559, count: 8, numa: 0}]
links: [{gpus: [0, 1, 2, 3, 4, 5, 6, 7], nvlinks: 18, pcie: NODE, switched: true}]
"""


@pytest.mark.parametrize("text", [_MIXED, _SWITCHED, "gpus: []"], ids=["mixed", "switched", "none"])
def test_both_drivers_say_the_same(machine, text):
    made = machine(text)

    assert made.real.hardware() == made.simulated.hardware()
    assert made.real.loads() == made.simulated.loads()


def test_index_and_minor_number_are_told_apart(machine):
    gpus = [device.gpu for device in machine(_MIXED).real.hardware().gpus]

    assert [(gpu.index, gpu.minor) for gpu in gpus] == [(0, 3), (1, 0), (2, 1), (3, 2)]
    assert [gpu.uuid for gpu in gpus if gpu.mig] == ["GPU-c"]


def test_memory_is_limited_by_cgroup_where_the_driver_can(machine, tmp_path):
    made = machine(_MIXED)
    with pytest.raises(DriverError, match="Not Supported"):
        made.real.limit_memory("GPU-a", tmp_path, 1 << 20)
    kept = tmp_path / "limits"
    made.target.write_text(f"memory_limits {kept}\n" + made.target.read_text())
    for cgroup, limit, refusal in (
        (tmp_path / "none", 1 << 20, "Operating System|operating system"),
        (tmp_path, 1 << 60, "Invalid Argument"),
    ):
        with pytest.raises(DriverError, match=refusal if os.geteuid() == 0 else "."):
            made.real.limit_memory("GPU-a", cgroup, limit)
    if os.geteuid() == 0:
        assert made.real.limit_memory("GPU-a", tmp_path, 1 << 20) == 1 << 20
        assert made.real.limit_memory("GPU-a", tmp_path, None) is None
    else:
        with pytest.raises(DriverError, match="Permission"):
            made.real.limit_memory("GPU-a", tmp_path, 1 << 20)


def test_graphics_and_compute_processes_are_both_counted(machine):
    load = machine(_MIXED).real.loads()["GPU-a"]

    assert [(each.pid, each.memory, each.cores) for each in load.processes] == [
        (17, 100, 5),
        (4242, 2048, 30),
    ]


_gpus = st.lists(
    st.fixed_dictionaries(
        {
            "model": st.sampled_from(["NVIDIA A10", "Tesla T4", "NVIDIA GeForce RTX 3090"]),
            "memory": st.integers(1, 200_000),
            "mig": st.booleans(),
            "rows_failed": st.booleans(),
            "recovery": st.sampled_from(["none", "reset", "reboot", "drain-peers", "drain"]),
            "capability": st.integers(30, 129),
            "brand": st.integers(0, 20),
        },
        optional={"numa": st.integers(0, 200), "temperature": st.integers(0, 110)},
    ),
    min_size=1,
    max_size=16,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(drawn=_gpus, data=st.data())
def test_any_machine_reads_alike_through_both(machine, drawn, data):
    minors = data.draw(st.permutations(range(len(drawn))))
    gpus = [{**device, "minor": minor} for device, minor in zip(drawn, minors, strict=True)]
    links = data.draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "gpus": st.lists(
                        st.integers(0, len(drawn) - 1), min_size=2, max_size=2, unique=True
                    ),
                    "nvlinks": st.integers(0, 2),
                    "pcie": st.sampled_from(["BOARD", "PIX", "PXB", "PHB", "NODE", "SYS"]),
                }
            ),
            max_size=6 if len(drawn) > 1 else 0,
        )
        if len(drawn) > 1
        else st.just([])
    )

    made = machine(str({"gpus": gpus, "links": links}).replace("True", "true"))

    assert made.real.hardware() == made.simulated.hardware()
    made.close()


def test_xid_and_ecc_are_reported_once(machine):
    made = machine(_MIXED)
    made.real.hardware()
    made.describe(
        _MIXED + "faults: [{sequence: 1, gpu: 1, xid: 79}, {sequence: 2, gpu: 0, ecc: true}]"
    )

    found = [fault for _ in range(3) for fault in made.real.wait_faults(0)]

    assert found == [
        GpuFault("GPU-b", XID, 79),
        GpuFault("GPU-a", ECC, detail="double-bit ECC error"),
    ]


def test_faults_are_noticed_before_anybody_asked_for_hardware(machine):
    made = machine(_MIXED)
    assert list(made.real.wait_faults(0)) == []
    made.describe(_MIXED + "faults: [{sequence: 9, gpu: 3, xid: 48}]")

    assert list(made.real.wait_faults(30)) == [GpuFault("GPU-d", XID, 48)]


def test_waiting_ends_as_soon_as_a_fault_appears(machine):
    made, found = machine(_MIXED), []
    made.real.hardware()
    waiting = threading.Thread(target=lambda: found.extend(made.real.wait_faults(60)))
    waiting.start()

    made.describe(_MIXED + "faults: [{sequence: 1, gpu: 0, xid: 31}]")
    waiting.join(30)

    assert found == [GpuFault("GPU-a", XID, 31)]


def test_lost_gpu_is_a_fault_and_stays_listed(machine):
    made = machine(_MIXED)
    before = made.real.hardware()
    assert before == made.simulated.hardware()
    made.describe(_MIXED.replace("uuid: GPU-b", "uuid: GPU-b, lost: true"))

    lost = [GpuFault("GPU-b", LOST, detail="no longer answers")]
    assert list(made.real.wait_faults(0)) == list(made.simulated.wait_faults(0)) == lost
    assert list(made.real.wait_faults(0)) == []
    after = made.real.hardware()
    assert after == made.simulated.hardware()
    assert [device.trouble for device in after.gpus] == ["", "lost", "", ""]
    assert set(made.real.loads()) == {"GPU-a", "GPU-c", "GPU-d"}

    made.describe(_MIXED)
    assert made.real.hardware() == before


def test_faults_of_others_are_told_while_a_gpu_is_lost(machine):
    made = machine(_MIXED)
    made.real.hardware()
    lost = _MIXED.replace("uuid: GPU-b", "uuid: GPU-b, lost: true")
    made.describe(lost + "faults: [{sequence: 1, gpu: 1, xid: 79}]")
    first = [*made.real.wait_faults(0), *made.real.wait_faults(0)]
    made.describe(lost + "faults: [{sequence: 1, gpu: 1, xid: 79}, {sequence: 2, gpu: 3, xid: 48}]")

    assert first == [
        GpuFault("GPU-b", XID, 79),
        GpuFault("GPU-b", LOST, detail="no longer answers"),
    ]
    assert list(made.real.wait_faults(30)) == [GpuFault("GPU-d", XID, 48)]


def test_gpu_that_came_back_is_watched_again(machine):
    made = machine(_MIXED)
    made.real.hardware()
    made.describe(_MIXED.replace("uuid: GPU-b", "uuid: GPU-b, lost: true"))
    assert len(made.real.wait_faults(0)) == 1
    made.describe(_MIXED)
    made.real.hardware()
    made.describe(_MIXED + "faults: [{sequence: 1, gpu: 1, xid: 48}]")

    assert list(made.real.wait_faults(30)) == [GpuFault("GPU-b", XID, 48)]


def test_driver_that_died_is_opened_again_once_it_is_back(machine):
    made = machine(_MIXED)
    before = made.real.hardware()
    made.describe(_MIXED + "unavailable: true")
    for _ in range(2):
        with pytest.raises(DriverError, match="Driver Not Loaded"):
            made.real.loads()
    with pytest.raises(DriverError, match="modprobe nvidia"):
        made.real.wait_faults(0)

    made.describe(_MIXED)
    assert made.real.hardware() == before


def test_waiting_thread_does_not_keep_a_dead_driver_closed(machine):
    made, ended = machine(_MIXED), []
    made.real.hardware()

    def wait():
        try:
            made.real.wait_faults(60)
        except DriverError as error:
            ended.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    made.describe(_MIXED + "unavailable: true")
    waiting.join(30)

    assert len(ended) == 1
    made.describe(_MIXED)
    assert len(made.real.hardware().gpus) == 4


def test_broken_file_of_the_library_leaves_the_last_good_state(machine, capfd):
    made = machine(_MIXED)
    before = made.real.hardware()
    made.target.write_text("gpu 0 zero\n")

    assert made.real.hardware() == before
    assert "machine.txt:1: 'gpu" in capfd.readouterr().err


def test_pcie_root_is_the_kernels_word_where_it_knows_the_gpu(machine):
    made = machine(_MIXED)
    below = made.sysfs / "devices" / "pci0000:c0" / "0000:c0:01.0" / "0000:c1:00.0"
    below.mkdir(parents=True)
    (below / "vendor").write_text("0x10de\n")
    listed = made.sysfs / "bus" / "pci" / "devices"
    listed.mkdir(parents=True)
    (listed / "0000:c1:00.0").symlink_to(below)

    roots = [device.pcie_root for device in made.real.hardware().gpus]
    assert roots == ["pci0000:c0", "", "", ""]


def test_numa_is_the_kernels_word_where_it_knows_the_gpu(machine):
    made = machine(_MIXED)
    folder = made.sysfs / "bus" / "pci" / "devices" / "0000:c1:00.0"
    folder.mkdir(parents=True)
    (folder / "vendor").write_text("0x10de\n")
    (folder / "numa_node").write_text("6\n")

    assert [device.gpu.numa for device in made.real.hardware().gpus] == [6, 0, None, None]


def test_closed_driver_refuses_and_closing_twice_is_harmless(machine):
    driver = machine(_MIXED).real
    driver.hardware()
    driver.close()
    driver.close()

    with pytest.raises(DriverError, match="closed"):
        driver.loads()


def test_missing_description_says_what_to_do(machine, monkeypatch):
    made = machine(_MIXED)
    monkeypatch.delenv("SLICEWISE_NVML_FILE")

    with pytest.raises(DriverError, match=r"cannot open libnvidia-ml\.so\.1: Driver Not Loaded"):
        made.real.hardware()


def test_file_that_is_no_library_is_named(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")

    with pytest.raises(DriverError, match=r"cannot load .*libnvidia-ml\.so\.1"):
        LibraryDriver(tmp_path / "libnvidia-ml.so.1").hardware()


def test_machine_without_nvml_is_told_to_install_the_driver(tmp_path):
    # A process of its own, for the bindings keep a library that was ever loaded.
    program = (
        "from slicewise.nvml.driver import DriverError\n"
        "from slicewise.nvml.library import LibraryDriver\n"
        "try:\n    LibraryDriver().hardware()\n"
        "except DriverError as error:\n    print(error)\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}

    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    ).stdout

    assert "cannot open libnvidia-ml.so.1: NVML Shared Library Not Found; install" in printed
