import os
import struct

import pytest

from slicewise.dialects.shared.injection import VcudaLimit
from slicewise.model import MiB, Percent
from slicewise.nodeagent.files import FileError
from slicewise.nodeagent.limits.vcuda import VcudaFolders, read_driver, write_config


def limit(cores=30, memory=4096, ceiling=None, whole=False):
    return VcudaLimit(MiB(memory), Percent(cores), ceiling, whole)


def number(data, at, form="<i"):
    return struct.unpack_from(form, data, at)[0]


def test_config_has_every_field_where_the_library_reads_it():
    data = write_config("uid-1", "main", limit(), "550.54.14")

    assert len(data) == 8240
    assert data[:48].rstrip(b"\0") == b"uid-1"
    assert data[4096:8192].rstrip(b"\0") == b"main"
    assert number(data, 8208, "<Q") == 4096 << 20
    offsets = (48, 8216, 8220, 8224, 8228, 8232)
    assert [number(data, at) for at in offsets] == [0, 30, 1, 550, 54, 1]


def test_soft_ceiling_is_no_hard_limit_and_whole_gpus_are_not_limited():
    soft = write_config("u", "c", limit(ceiling=Percent(80)), "")
    whole = write_config("u", "c", limit(100, whole=True), "")

    assert (number(soft, 48), number(soft, 8220)) == (80, 0)
    assert number(whole, 8232) == 0


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("550.54.14", (550, 54)), ("470", (470, 0)), ("", (0, 0)), ("beta.1", (0, 1))],
)
def test_driver_version_is_read_as_far_as_it_is_numbers(text, numbers):
    assert read_driver(text) == numbers


def test_container_finds_its_limits_by_name_and_by_id(tmp_path):
    folders = VcudaFolders(tmp_path)
    folders.write_limits("uid-1", "main", b"limits")
    folders.name_container("uid-1", "main", "f00d")
    folders.name_container("uid-1", "other", "beef")

    assert (tmp_path / "uid-1" / "f00d" / "vcuda.config").read_bytes() == b"limits"
    assert not (tmp_path / "uid-1" / "beef").exists()


def test_containers_may_read_and_not_write(tmp_path):
    VcudaFolders(tmp_path).write_limits("uid-1", "main", b"limits")
    folder = tmp_path / "uid-1" / "main"

    assert os.stat(folder).st_mode & 0o022 == 0
    assert os.stat(folder / "vcuda.config").st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("uid", "container"),
    [("../../etc", "main"), ("uid-1", "../up"), ("", "main"), ("uid-1", "a/b")],
)
def test_names_that_leave_the_folder_write_nothing(tmp_path, uid, container):
    root = tmp_path / "a" / "b"
    with pytest.raises(FileError):
        VcudaFolders(root).write_limits(uid, container, b"limits")

    assert not list(tmp_path.rglob("vcuda.config"))


def test_folders_and_their_other_names_are_listed_and_removed(tmp_path):
    folders = VcudaFolders(tmp_path)
    folders.write_limits("uid-1", "main", b"limits")
    folders.alias("units", "uid-1")
    assert (tmp_path / "by-units" / "units" / "main" / "vcuda.config").is_file()
    assert (folders.pods(), folders.aliases()) == (("uid-1",), ("units",))

    folders.remove("uid-1")
    folders.remove_alias("units")
    assert (folders.pods(), folders.aliases()) == ((), ())
