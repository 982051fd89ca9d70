"""gpu-manager's driver volumes, on trees of real shared libraries."""

import os
import shutil
import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from fakes.driver_tree import VERSION, make_driver, write_library, write_narrow_library
from slicewise.nodeagent.compat import driver_volumes
from slicewise.nodeagent.compat.driver_files import find_driver
from slicewise.nodeagent.compat.driver_volumes import DriverVolumes
from slicewise.nodeagent.compat.shared_objects import SharedObject, read_shared_object
from slicewise.nodeagent.compat.volume_config import DEFAULT_VOLUMES


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    return make_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def host(installed, tmp_path):
    """A host of the test's own, with the driver on it."""
    return shutil.copytree(installed, tmp_path / "host", symlinks=True)


def build(host, tmp_path, **facts):
    version = tmp_path / "version"
    volumes = DriverVolumes(tmp_path / "vdriver", roots=(host,), version_file=version, **facts)
    volumes.refresh()
    return volumes, tmp_path / "vdriver"


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_both_volumes_hold_tools_and_libraries_with_the_names_programs_load(host, tmp_path):
    _, base = build(host, tmp_path)

    for volume in ("nvidia", "origin"):
        assert (base / volume / "bin/nvidia-smi").read_text().startswith("#!/bin/sh")
        assert os.access(base / volume / "bin/nvidia-smi", os.X_OK)
        libraries = base / volume / "lib64"
        assert {f"libcuda.so.{VERSION}", "libcuda.so.1", "libcuda.so"} <= names(libraries)
        assert os.readlink(libraries / "libcuda.so.1") == f"libcuda.so.{VERSION}"
        assert os.readlink(libraries / "libcuda.so") == "libcuda.so.1"
        # Its soname is its own name, so that one plain link is enough.
        assert f"libnvidia-eglcore.so.{VERSION}" in names(libraries)
        assert all(path.exists() for path in libraries.iterdir())


def test_program_finds_the_volumes_library_by_its_soname(host, tmp_path):
    _, base = build(host, tmp_path)
    code = "import ctypes; ctypes.CDLL('libnvidia-ml.so.1')"
    env = {**os.environ, "LD_LIBRARY_PATH": str(base / "nvidia/lib64")}

    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)

    assert (ran.returncode, ran.stderr) == (0, b"")


def test_second_look_changes_nothing(host, tmp_path):
    volumes, _ = build(host, tmp_path)

    assert volumes.refresh() == 0


def test_files_are_copied_where_links_across_file_systems_are_refused(host, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(18, "cross-device link")

    monkeypatch.setattr(driver_volumes.os, "link", refuse)
    volumes, base = build(host, tmp_path)

    copied = base / "nvidia/lib64" / f"libcuda.so.{VERSION}"
    assert copied.read_bytes() == (host / f"usr/lib64/libcuda.so.{VERSION}").read_bytes()
    assert copied.stat().st_nlink == 1
    assert volumes.refresh() == 0


def test_new_driver_takes_the_place_of_the_old_one(host, tmp_path):
    volumes, base = build(host, tmp_path)
    folder = (base / "nvidia").stat().st_ino
    shutil.rmtree(host)
    make_driver(host, "560.28.03")

    assert volumes.refresh() > 0

    libraries = base / "nvidia/lib64"
    assert os.readlink(libraries / "libcuda.so.1") == "libcuda.so.560.28.03"
    assert not [name for name in names(libraries) if VERSION in name]
    # Containers have this very folder mounted.
    assert (base / "nvidia").stat().st_ino == folder


def test_of_two_drivers_on_the_disk_the_loaded_one_is_taken(host, tmp_path):
    make_driver(host, "560.28.03")
    loaded = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {VERSION}  Tue Mar  5 2024\n"
    (tmp_path / "version").write_text(loaded)

    _, base = build(host, tmp_path)

    assert os.readlink(base / "origin/lib64/libcuda.so.1") == f"libcuda.so.{VERSION}"
    (tmp_path / "version").unlink()
    newest = find_driver((host,), DEFAULT_VOLUMES, tmp_path / "version")
    assert newest is not None
    assert newest.version == "560.28.03"


def test_libraries_of_other_vendors_under_common_names_are_left_out(host, tmp_path):
    write_library(host / "usr/lib64/libGL.so.1.7.0", "libGL.so.1")
    write_library(host / f"usr/lib64/libEGL.so.{VERSION}", "libEGL.so.1")

    _, base = build(host, tmp_path)

    assert "libGL.so.1.7.0" not in names(base / "origin/lib64")
    assert {f"libEGL.so.{VERSION}", "libEGL.so.1"} <= names(base / "origin/lib64")


def test_narrow_libraries_go_to_the_folder_of_compat32(host, tmp_path):
    write_narrow_library(host / f"usr/lib32/libcuda.so.{VERSION}")

    _, base = build(host, tmp_path)

    assert names(base / "nvidia/lib") == {f"libcuda.so.{VERSION}", "libcuda.so"}


@pytest.mark.parametrize("folder", ["lib64", "usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"])
def test_driver_is_found_where_distributions_put_it(tmp_path, folder):
    host = make_driver(tmp_path / "host", folder=folder)

    assert find_driver((host,), DEFAULT_VOLUMES, tmp_path / "none").version == VERSION


def test_first_root_that_has_a_driver_is_taken_and_usr_may_be_mounted_alone(host, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()

    found = find_driver((empty, host / "usr"), DEFAULT_VOLUMES, tmp_path / "none")

    assert found.version == VERSION
    assert found.tools["nvidia-smi"] == host / "usr/bin/nvidia-smi"


def test_interposer_answers_for_both_libraries_in_the_volume_of_shares_alone(host, tmp_path):
    write_library(host / "usr/lib64/libcuda-control.so", None)

    _, base = build(host, tmp_path)

    for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"):
        assert os.readlink(base / "nvidia/lib64" / name) == "libcuda-control.so"
    assert f"libcuda.so.{VERSION}" in names(base / "nvidia/lib64")
    assert os.readlink(base / "origin/lib64/libcuda.so.1") == f"libcuda.so.{VERSION}"


def test_what_an_earlier_gpu_manager_brought_is_kept(host, tmp_path):
    base = tmp_path / "vdriver/nvidia"
    for name in ("bin/gpu-client", "lib64/libcuda-control.so", "lib64/libold.so.1"):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("kept")

    build(host, tmp_path)

    assert (base / "bin/gpu-client").read_text() == "kept"
    assert os.readlink(base / "lib64/libcuda.so.1") == "libcuda-control.so"
    assert not (base / "lib64/libold.so.1").exists()


def test_host_without_a_driver_is_said_once_and_leaves_the_volumes_alone(tmp_path):
    kept = tmp_path / "vdriver/nvidia/bin/nvidia-smi"
    kept.parent.mkdir(parents=True)
    kept.write_text("kept")

    with capture_logs() as lines:
        volumes, _ = build(tmp_path / "nowhere", tmp_path)
        assert volumes.refresh() == 0

    assert [line["event"] for line in lines] == ["driver files not found"]
    assert kept.read_text() == "kept"


def test_name_and_width_of_a_library_are_read_from_it(installed, tmp_path):
    found = read_shared_object(installed / f"usr/lib64/libcuda.so.{VERSION}")
    nameless = tmp_path / "x.so"
    write_library(nameless, None)
    (tmp_path / "text").write_text("libcuda.so.1")

    assert found == SharedObject(64, "libcuda.so.1")
    assert read_shared_object(nameless) == SharedObject(64)
    assert read_shared_object(tmp_path / "text") is None
    assert read_shared_object(tmp_path / "nothing") is None
