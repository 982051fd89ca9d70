"""Grant and usage files, byte by byte as the library has them, and whatever is done to them."""

import contextlib
import errno
import os
import random
import struct
import subprocess
import sys
import zlib
from dataclasses import replace

import pytest

from slicewise.nodeagent.limits import grant_file, usage_file
from slicewise.nodeagent.limits.grant_file import (
    DeviceGrant,
    FedDevice,
    GrantFlags,
    LimitFileError,
    LimitGrant,
    feed_grant,
    read_grant,
    write_grant,
)
from slicewise.nodeagent.limits.limit_folders import LimitFiles, LimitFolders
from slicewise.nodeagent.limits.usage_file import read_meters, read_slots, write_usage

GIB = 1 << 30
UUID = "GPU-5c1a6f0e-8d4b-4c3a-9b2f-001122334455"
DEVICE = DeviceGrant(
    uuid=UUID,
    memory_bytes=8 * GIB,
    cores=3000,
    ceiling=3000,
    limit=6000,
    overhead_bytes=7,
    context_bytes=256 << 20,
    gpu_bytes=40 * GIB,
    priority=-5,
    weight=3000,
    measured=12,
)
FLAGS = GrantFlags.GATE_MEMORY | GrantFlags.GATE_COMPUTE | GrantFlags.FAIL_CLOSED
GRANT = LimitGrant("uid-1", "main", (DEVICE, replace(DEVICE, memory_bytes=GIB)), FLAGS)


def word(content, at, form):
    return struct.unpack_from(f"<{form}", content, at)[0]


def test_grant_has_every_field_at_its_offset():
    content = write_grant(GRANT, sequence=6, written_ns=99)

    assert len(content) == 4096
    assert content[:8] == b"SWGRANT1"
    assert [word(content, at, "I") for at in (8, 12, 36, 40)] == [1, 4096, 2, 7]
    assert [word(content, at, "Q") for at in (16, 24)] == [6, 99]
    assert word(content, 32, "I") == zlib.crc32(content[64:])
    assert content[44:64] == bytes(20)
    second = content[64 + 240 : 64 + 480]
    assert second[:48].rstrip(b"\0") == UUID.encode()
    assert second[48:64].hex() == UUID.removeprefix("GPU-").replace("-", "")
    assert word(second, 64, "Q") == GIB
    assert [word(second, at, "I") for at in (72, 76, 80, 84)] == [3000, 3000, 6000, 65536]
    assert [word(second, at, "Q") for at in (88, 96, 104, 112)] == [
        7, 256 << 20, 40 * GIB, 20_000_000,
    ]  # fmt: skip
    assert word(second, 120, "i") == -5
    assert [word(second, at, "I") for at in (124, 128)] == [3000, 12]
    assert second[132:] == bytes(108)
    assert content[3904:3952].rstrip(b"\0") == b"uid-1"
    assert content[3952:4016].rstrip(b"\0") == b"main"


def test_grant_is_read_back():
    assert read_grant(write_grant(GRANT, sequence=4, written_ns=5)) == (GRANT, 4, 5)


def test_grant_of_more_gpus_than_there_is_room_for_is_refused():
    with pytest.raises(LimitFileError, match="17 GPUs"):
        write_grant(LimitGrant("u", "c", (DEVICE,) * 17))


def test_feeding_moves_the_sequence_and_keeps_the_rest():
    content = bytearray(write_grant(GRANT, sequence=2))
    feed_grant(content, [FedDevice(4500, 6000, 70000, 11, 13, 29)], 1234)
    grant, sequence, written_ns = read_grant(bytes(content))

    assert (sequence, written_ns) == (4, 1234)
    fed = replace(
        DEVICE, ceiling=4500, scale=70000, overhead_bytes=11, context_bytes=13, measured=29
    )
    assert grant == replace(GRANT, devices=(fed, GRANT.devices[1]))


def test_grant_that_a_dying_agent_left_half_written_is_made_whole_by_the_next():
    content = bytearray(write_grant(GRANT, sequence=3))
    with pytest.raises(LimitFileError, match="even"):
        read_grant(bytes(content))
    feed_grant(content, [FedDevice(3000, 3000)] * 2, 1)

    assert read_grant(bytes(content))[1] == 6


def damage(content, rng):
    broken = bytearray(content)
    match rng.randrange(3):
        case 0:
            for _ in range(rng.randrange(1, 5)):
                broken[rng.randrange(len(broken))] ^= rng.randrange(1, 256)
        case 1:
            del broken[rng.randrange(len(broken)) :]
        case 2:
            at = rng.randrange(len(broken))
            broken[at : at + 64] = rng.randbytes(min(64, len(broken) - at))
    return bytes(broken)


def check_damaged(count, seed):
    """How many damaged grants were accepted with other content than was written."""
    rng, wrong = random.Random(seed), 0
    grant, usage = write_grant(GRANT), bytearray(write_usage(1))
    usage[32:40] = rng.randbytes(8)
    for _ in range(count):
        with contextlib.suppress(LimitFileError):
            found = read_grant(damage(grant, rng))[0]
            # Sequence, times, count and flags stand in front of what the CRC covers.
            wrong += found.devices not in [GRANT.devices[:at] for at in range(3)]
        broken = damage(bytes(usage), rng)
        with contextlib.suppress(LimitFileError):
            read_meters(broken, 2)
        with contextlib.suppress(LimitFileError):
            read_slots(broken, [GIB, GIB])
    return wrong


def test_damaged_files_are_refused_and_harm_nobody():
    assert check_damaged(400, seed=14) == 0


@pytest.mark.cluster
def test_hundred_thousand_damaged_files_are_refused_and_harm_nobody():
    assert check_damaged(100_000, seed=15) == 0


def write_slot(usage, index, pid=7, used=(5, 0)):
    usage[32 + index // 8] |= 1 << index % 8
    at = 8192 + index * 448
    struct.pack_into("<II", usage, at, 1, pid)
    struct.pack_into("<qq", usage, at + 64, *used)


def test_usage_has_every_field_at_its_offset():
    usage = bytearray(write_usage(77))
    struct.pack_into("<11q", usage, 4096 + 256, *range(1, 12))
    write_slot(usage, 200, pid=41, used=(9, 8))
    struct.pack_into("<Q", usage, 8192 + 200 * 448 + 56, 3)

    assert len(usage) == 122_880
    assert usage[:8] == b"SWUSAGE1"
    assert [word(usage, at, "I") for at in (8, 12, 16, 20)] == [1, 122_880, 256, 16]
    assert word(usage, 24, "Q") == 77
    meters = read_meters(bytes(usage[:8192]), 2)[1]
    assert (meters.spent_ns, meters.credited_ns, meters.stamp_ns, meters.throttled_ns) == (
        1, 2, 3, 4,
    )  # fmt: skip
    assert (meters.launches, meters.timed, meters.timed_ns, meters.refused) == (5, 6, 7, 8)
    assert (meters.refused_bytes, meters.last_launch_ns, meters.gave_up) == (9, 10, 11)
    (slot,) = read_slots(bytes(usage), [GIB, GIB])
    assert (slot.index, slot.pid, slot.used, slot.contexts) == (200, 41, (9, 8), 3)


@pytest.mark.parametrize("used", [(-1, 0), (GIB + 1, 0), (0, 1)])
def test_slot_that_says_the_impossible_is_damage(used):
    usage = bytearray(write_usage(1))
    write_slot(usage, 0, used=used)

    with pytest.raises(LimitFileError, match="slot 0"):
        read_slots(bytes(usage), [GIB])


HOLD = """
import fcntl, os, struct, sys
file = os.open(sys.argv[1], os.O_RDWR)
lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, (1 << 20) + 3, 1, 0)
fcntl.fcntl(file, fcntl.F_SETLK, lock)
print("held", flush=True)
sys.stdin.read()
"""


def test_holder_of_a_slot_is_known_by_its_lock_until_it_is_killed(tmp_path):
    folders = LimitFolders(tmp_path)
    folders.write(GRANT, "v1")
    files = LimitFiles(folders.folder("uid-1", "main"))
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(files.folder / "usage")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        assert (files.find_holder(3), files.find_holder(2)) == (holder.pid, None)
    finally:
        holder.kill()
        holder.communicate()
    assert files.find_holder(3) is None
    files.close()


def inodes(folder):
    return [os.stat(folder / name).st_ino for name in ("grant", "usage")]


def test_files_are_whole_and_readable_by_any_user(tmp_path):
    folders = LimitFolders(tmp_path)
    folders.write(GRANT, "v1")
    folder = folders.folder("uid-1", "main")

    assert [(folder / name).stat().st_mode & 0o777 for name in ("grant", "usage")] == [0o444, 0o666]
    assert [(folder / name).stat().st_size for name in ("grant", "usage")] == [4096, 122_880]
    # Allocated in full, so that a tmpfs which fills up later harms no running container.
    assert (folder / "usage").stat().st_blocks * 512 >= 122_880
    assert list(folders.containers()) == [("uid-1", "main")]
    assert folders.libraries() == {"v1"}


def test_files_of_a_container_that_starts_again_are_kept(tmp_path):
    folders = LimitFolders(tmp_path)
    folders.write(GRANT, "v1")
    folder = folders.folder("uid-1", "main")
    before, files = inodes(folder), LimitFiles(folder)
    files.feed([FedDevice(5000, 6000, 99)] * 2, 55)
    files.close()
    folders.write(GRANT, "v2")

    assert inodes(folder) == before
    assert read_grant((folder / "grant").read_bytes())[2] == 55
    assert folders.libraries() == {"v2"}


@pytest.mark.parametrize("name", ["grant", "usage"])
def test_file_that_was_damaged_is_written_in_place(tmp_path, name):
    folders = LimitFolders(tmp_path)
    folders.write(GRANT, "v1")
    folder = folders.folder("uid-1", "main")
    before = inodes(folder)
    os.chmod(folder / name, 0o666)
    (folder / name).write_bytes(b"nonsense")
    folders.write(GRANT, "v1")

    assert inodes(folder) == before
    assert read_grant((folder / "grant").read_bytes())[0] == GRANT
    assert read_slots((folder / "usage").read_bytes(), [GIB, GIB]) == ()


def test_usage_that_its_tenant_resized_is_cut_back(tmp_path):
    folders = LimitFolders(tmp_path)
    folders.write(GRANT, "v1")
    files = LimitFiles(folders.folder("uid-1", "main"))

    assert not files.restore_size()
    os.truncate(files.folder / "usage", 1 << 21)
    assert files.restore_size()
    assert (files.folder / "usage").stat().st_size == usage_file.SIZE
    files.close()


@pytest.mark.parametrize(("uid", "container"), [("../x", "c"), ("u", "../../etc"), ("", "c")])
def test_names_that_are_no_names_make_no_files(tmp_path, uid, container):
    with pytest.raises(Exception, match="expected letters"):
        LimitFolders(tmp_path / "limits").write(replace(GRANT, uid=uid, container=container), "v")
    assert not (tmp_path / "x").exists()


def test_link_by_units_leads_to_the_container(tmp_path):
    folders = LimitFolders(tmp_path)
    folders.write(GRANT, "v1")
    folders.alias("abc", "uid-1", "main")

    assert (tmp_path / "by-units" / "abc" / "grant").stat().st_size == grant_file.SIZE
    assert folders.aliases() == ("abc",)
    assert folders.pods() == ("uid-1",)
    folders.remove_alias("abc")
    folders.remove("uid-1")
    assert folders.pods() == folders.aliases() == ()


def test_tenant_that_fills_the_tmpfs_keeps_no_container_from_its_files(tmp_path, monkeypatch):
    folders, really = LimitFolders(tmp_path), os.posix_fallocate
    folders.write(GRANT, "v1")
    usage, times = folders.folder("uid-1", "main") / "usage", iter(range(4))

    def allocate(file, start, size):
        # It is as large as the tmpfs again each time that it was cut back, but for the last.
        if usage.stat().st_size > 1 << 20:
            raise OSError(errno.ENOSPC, "no space")
        if next(times, None) is not None:
            os.truncate(usage, 64 << 20)
            raise OSError(errno.ENOSPC, "no space")
        really(file, start, size)

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    os.truncate(usage, 64 << 20)
    folders.write(replace(GRANT, uid="uid-2"), "v1")

    assert list(folders.containers()) == [("uid-1", "main"), ("uid-2", "main")]
    assert usage.stat().st_size == 122_880


def test_tmpfs_that_is_full_of_honest_files_is_told_at_once(tmp_path, monkeypatch):
    def allocate(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", allocate)

    with pytest.raises(LimitFileError, match="the tmpfs of limits may be full"):
        LimitFolders(tmp_path).write(GRANT, "v1")
    assert list(LimitFolders(tmp_path).containers()) == []
