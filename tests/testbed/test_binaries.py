import shutil

import pytest

from slicewise_testbed import binaries, build
from slicewise_testbed.binaries import MODULES, find_binaries
from slicewise_testbed.build import ensure_binaries
from slicewise_testbed.errors import TestbedError


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy of the Go modules that a test may change, and a cache of its own."""
    for module in MODULES:
        shutil.copytree(binaries.PROJECT / module.folder, tmp_path / module.folder)
    monkeypatch.setattr(binaries, "PROJECT", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def program(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


@pytest.mark.parametrize("file", ["kube/go.mod", "containerd/go.sum", "helm/go.mod"])
def test_changed_version_has_a_cache_folder_of_its_own(project, file):
    before = binaries.cache_folder()
    (project / file).write_text((project / file).read_text().replace("v1.", "v2.", 1))

    assert binaries.cache_folder() != before


def test_assets_folder_comes_before_the_cache(project, monkeypatch):
    cached = program(binaries.cache_folder() / "kubectl")
    given = program(project / "assets" / "kubectl")

    assert find_binaries().path("kubectl") == str(cached)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given.parent))
    assert find_binaries().path("kubectl") == str(given)


def test_missing_binary_names_the_command_that_builds_it(project):
    with pytest.raises(TestbedError, match=r"etcd is not in .*; run `make kube`"):
        find_binaries().path("etcd")


def test_full_cache_is_used_without_building(project):
    for name in (each for module in MODULES for each in module.provides):
        program(binaries.cache_folder() / name)
    said = []

    assert ensure_binaries(said.append) == binaries.cache_folder()
    assert said == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.folder)
def test_replaced_go_modules_are_pinned_and_never_moved(module):
    lines = (binaries.PROJECT / module.folder / "go.mod").read_text().splitlines()

    for line in lines:
        if "=>" in line:
            module_path, target, version = line.replace("=>", " ").split()
            assert (module_path, version[0]) == (target, "v")


def test_program_is_built_once_for_each_of_its_sources(tmp_path, monkeypatch):
    built = []

    def compile_it(_go, module, out, _say, *, targets):
        built.append((module.folder, targets))
        (out / module.provides[0]).touch(mode=0o755)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "_build", compile_it)
    monkeypatch.setattr(build, "find_go", lambda _: "go")
    source = tmp_path / "tool"
    source.mkdir()
    paths = set()
    for text in ("package main", "package main", "package main // changed"):
        (source / "main.go").write_text(text)
        paths.add(build.ensure_program(source, print))

    assert built == [(str(source), (".",))] * 2
    assert len(paths) == 2
