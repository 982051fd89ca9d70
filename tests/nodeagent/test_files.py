import errno
import os

import pytest

from slicewise.nodeagent.files import (
    FileError,
    check_name,
    make_folder,
    make_link,
    remove,
    write_whole,
)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../../etc", "a/b", "/etc", "a..b", ".hidden", "a\n", "a" * 200, "ä"],
)
def test_name_that_could_leave_its_folder_is_refused(name):
    with pytest.raises(FileError, match="pod UID"):
        check_name("pod UID", name)


@pytest.mark.parametrize("name", ["0a8b-4c", "c0", "train.main", "a" * 63])
def test_honest_name_is_kept(name):
    assert check_name("container", name) == name


def test_written_file_is_whole_and_leaves_nothing_beside_it(tmp_path):
    write_whole(tmp_path / "a", b"one")
    write_whole(tmp_path / "a", b"two")

    assert (tmp_path / "a").read_bytes() == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_full_disk_is_named_and_what_was_there_stays(tmp_path, monkeypatch):
    write_whole(tmp_path / "a", b"one")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"/a: No space left on device; free space"):
        write_whole(tmp_path / "a", b"two")

    assert (tmp_path / "a").read_bytes() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_link_is_replaced_and_removed_without_what_it_points_at(tmp_path):
    target = tmp_path / "real"
    target.mkdir()
    make_link(tmp_path / "link", "elsewhere")
    make_link(tmp_path / "link", str(target))

    assert remove(tmp_path / "link")
    assert not remove(tmp_path / "link")
    assert target.is_dir()


def test_folder_below_a_file_is_an_error_that_names_it(tmp_path):
    (tmp_path / "a").touch()

    with pytest.raises(FileError, match="cannot make folder"):
        make_folder(tmp_path / "a" / "b")
