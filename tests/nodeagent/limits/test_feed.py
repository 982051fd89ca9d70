"""The loop over limited containers, with a usage file that the test writes and a clock it moves."""

import os
import shutil
import struct
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

import pytest

from slicewise.nodeagent.limits import feed, usage_file
from slicewise.nodeagent.limits.feed import LimitFeed
from slicewise.nodeagent.limits.grant_file import DeviceGrant, LimitGrant, read_grant
from slicewise.nodeagent.limits.limit_folders import LimitFiles, LimitFolders
from slicewise.nvml.driver import DriverError

MS = 1_000_000
GIB = 1 << 30
SOFT = DeviceGrant(uuid="GPU-0", memory_bytes=GIB, cores=3000, limit=10_000, gpu_bytes=4 * GIB)
HARD = replace(SOFT, cores=7000, limit=7000)


class PlayedContainer:
    """What the library would write, written by the test."""

    def __init__(self, folders, uid, device):
        self.key = (uid, "main")
        folders.write(LimitGrant(uid, "main", (device,)), "v1")
        self.folder = folders.folder(uid, "main")
        self.spent = self.throttled = 0

    def use(self, ns, throttled=0):
        self.spent += ns
        self.throttled += throttled
        with open(self.folder / "usage", "r+b") as file:
            file.seek(4096)
            file.write(struct.pack("<qqQQ", self.spent, self.spent, 1, self.throttled))

    @contextmanager
    def hold_slot(self):
        """A process that holds the first slot, and says that it uses nothing."""
        path = self.folder / "usage"
        with open(path, "r+b") as file:
            file.seek(32)
            file.write(struct.pack("<Q", 1))
            file.seek(usage_file.METERS)
            file.write(struct.pack("<II", 1, 41))
        program = (
            "import fcntl,sys;f=open(sys.argv[1],'r+b');"
            f"fcntl.lockf(f,fcntl.LOCK_EX,1,{usage_file.LOCKS});print('held',flush=True);input()"
        )
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", program, path], **pipes) as holder:
            try:
                assert holder.stdout.readline() == b"held\n"
                yield
            finally:
                holder.kill()

    @property
    def grant(self):
        return read_grant((self.folder / "grant").read_bytes())

    @property
    def device(self):
        return self.grant[0].devices[0]


class FeedBench:
    def __init__(self, root):
        self.folders, self.now = LimitFolders(root), 1000 * MS
        self.busy, self.broken = {"GPU-0": {}}, False
        self.feed = LimitFeed(self.folders, self, lambda: self.now)

    def compute(self):
        if self.broken:
            raise DriverError("gone")
        return self.busy

    def add(self, uid, device=SOFT):
        return PlayedContainer(self.folders, uid, device)

    def run(self, periods, *uses):
        """So many periods, in each of which containers use and wait as the functions say."""
        for _ in range(periods):
            for container, used, throttled in uses:
                container.use(used, throttled)
            self.now += 100 * MS
            self.feed.tick()


@pytest.fixture
def bench(tmp_path):
    made = FeedBench(tmp_path)
    with closing(made.feed):
        yield made


def test_grant_is_renewed_in_place_with_every_period(bench):
    container = bench.add("u1")
    inode = os.stat(container.folder / "grant").st_ino
    bench.run(3)

    assert container.grant[1:] == (8, bench.now)
    assert os.stat(container.folder / "grant").st_ino == inode


def test_idle_neighbours_part_is_lent_within_250_ms_and_called_back_as_fast(bench):
    one, other = bench.add("u1"), bench.add("u2", HARD)
    bench.run(3, (one, 30 * MS, 70 * MS))
    assert one.device.ceiling == 3000

    soft = bench.add("u3", replace(SOFT, cores=7000))
    bench.folders.remove("u2")
    bench.run(12, (one, 30 * MS, 70 * MS), (soft, 0, 0))
    assert one.device.ceiling == 10_000 - 200

    bench.run(2, (one, 90 * MS, 10 * MS), (soft, 10 * MS, 60 * MS))
    assert (one.device.ceiling, soft.device.ceiling) == (3000, 7000)
    assert other.key == ("u2", "main")


def test_hard_limits_are_their_own_ceiling_on_an_idle_gpu(bench):
    container = bench.add("u1", HARD)
    bench.run(5, (container, 70 * MS, 30 * MS))

    assert container.device.ceiling == 7000


def test_container_that_appears_is_fed_within_a_second_and_one_that_goes_is_dropped(bench):
    bench.run(1)
    container = bench.add("u1")
    bench.run(10)
    assert container.grant[2] == bench.now

    bench.folders.remove("u1")
    bench.run(10)
    assert bench.feed.limited == {}


def test_pod_that_is_removed_while_folders_are_read_ends_nothing(bench, monkeypatch):
    bench.add("u1")
    kept = bench.add("u2")
    listed = bench.folders.pods()
    monkeypatch.setattr(bench.folders, "pods", lambda: listed)
    bench.folders.remove("u1")
    bench.run(1)

    assert kept.grant[2] == bench.now
    assert list(bench.folders.containers()) == [("u2", "main")]


def test_container_that_is_removed_while_it_is_opened_leaves_no_file_open(bench, monkeypatch):
    bench.add("u1")

    def open_and_lose(folder):
        files = LimitFiles(folder)
        shutil.rmtree(folder)
        return files

    monkeypatch.setattr(feed, "LimitFiles", open_and_lose)
    before = os.listdir("/proc/self/fd")
    bench.run(1)

    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_scale_is_corrected_by_what_the_driver_sees_and_survives_a_restart(bench, tmp_path):
    container = bench.add("u1", HARD)
    bench.run(1)
    fed = bench.feed._fed["u1", "main"]
    fed.look_at_slots = lambda: None
    fed.pids = frozenset({7})
    bench.busy["GPU-0"] = {7: 35}
    bench.run(100, (container, 70 * MS, 30 * MS))
    scale = container.device.scale
    assert scale < 0.9 * 65536

    again = FeedBench(tmp_path)
    with closing(again.feed):
        again.run(1)
    assert container.device.scale == scale


def test_driver_that_is_silent_leaves_the_scale_alone(bench):
    container = bench.add("u1", HARD)
    bench.broken = True
    bench.run(30, (container, 70 * MS, 30 * MS))

    assert container.device.scale == 65536
    assert container.device.ceiling == 7000


@pytest.mark.parametrize(
    ("harm", "damage"),
    [
        pytest.param(lambda path: os.truncate(path, 100), "changed its size", id="truncated"),
        pytest.param(lambda path: os.truncate(path, 1 << 20), "changed its size", id="grown"),
        pytest.param(lambda path: path.write_bytes(b"x" * 122_880), "header", id="overwritten"),
    ],
)
def test_container_that_harms_its_usage_file_is_named_and_its_neighbour_fed(bench, harm, damage):
    bad, good = bench.add("u1"), bench.add("u2")
    bench.run(1)
    harm(bad.folder / "usage")
    bench.run(10, (good, 30 * MS, 70 * MS))

    assert damage in bench.feed.limited["u1", "main"].damage
    assert bench.feed.limited["u2", "main"].damage == ""
    assert (bad.folder / "usage").stat().st_size == 122_880
    # Its neighbour borrows what it does not use; it has its guarantee all the same.
    assert bad.device.ceiling == 3000
    assert good.device.ceiling == 10_000 - 200


def test_container_that_lies_about_its_use_takes_nothing_from_others(bench):
    liar, other = bench.add("u1"), bench.add("u2", replace(SOFT, cores=5000, limit=5000))
    bench.run(20, (liar, 10**15, 10**15), (other, 50 * MS, 50 * MS))

    assert other.device.ceiling == 5000
    assert liar.device.ceiling == 5000


def test_overhead_is_what_the_driver_counts_beyond_the_slots(bench):
    container = bench.add("u1")
    bench.run(1)
    for counted in (300, 200, 250):
        bench.feed.observe(container.key, "GPU-0", ("ml", "A10"), counted << 20)
    bench.run(1)

    assert container.device.overhead_bytes == 200 << 20


def test_context_is_learned_from_containers_of_the_own_namespace_alone(bench):
    with ExitStack() as stack:
        liar, fellow, other = (bench.add(uid) for uid in ("u1", "u2", "u3"))
        for each in (liar, fellow, other):
            stack.enter_context(each.hold_slot())
        bench.run(11)
        for _ in range(40):
            # Its slots say nothing of the gigabyte that it has.
            bench.feed.observe(liar.key, "GPU-0", ("liars", "A10"), 1 << 30)
        bench.feed.observe(fellow.key, "GPU-0", ("liars", "A10"), 0)
        bench.feed.observe(other.key, "GPU-0", ("ml", "A10"), 300 << 20)
        bench.run(1)

    assert fellow.device.context_bytes == 1 << 30
    assert other.device.context_bytes == 300 << 20


def test_limited_container_is_told_with_its_figures(bench):
    container = bench.add("u1", HARD)
    bench.run(11, (container, 70 * MS, 30 * MS))
    (gpu,) = bench.feed.limited[container.key].gpus.values()

    assert gpu.meters.spent_ns == 11 * 70 * MS
    assert gpu.tracked_bytes == 0
    assert gpu.fed.ceiling == 7000
