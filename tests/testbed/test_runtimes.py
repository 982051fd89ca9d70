import tomllib
from pathlib import Path

import pytest

from slicewise_testbed import runtimes
from slicewise_testbed.binaries import CONTAINERD
from slicewise_testbed.errors import TestbedError
from slicewise_testbed.runtimes import WITH_CDI, WITHOUT_CDI, ensure_packaged_containerd


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("runtime", [WITH_CDI, WITHOUT_CDI], ids=lambda runtime: runtime.name)
def test_configuration_is_toml_that_keeps_the_score_and_names_the_given_paths(runtime):
    text = runtime.configuration(Path("/a/network"), Path("/a/plugins"), Path("/a/runc"))

    assert tomllib.loads(text)["root"] == "/var/lib/containerd"
    for word in ("restrict_oom_score_adj = true", "/a/network", "/a/plugins", '"/a/runc"'):
        assert word in text


def test_package_in_the_cache_is_not_fetched_again(cache):
    for name in CONTAINERD:
        path = runtimes.package_folder() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
    said = []

    ensure_packaged_containerd(said.append)

    assert said == []


def test_machine_without_packages_is_told_what_is_missing_and_keeps_no_half(cache, monkeypatch):
    monkeypatch.setenv("PATH", str(cache))

    with pytest.raises(TestbedError, match="cannot fetch the package containerd"):
        ensure_packaged_containerd(lambda _: None)

    assert list(runtimes.package_folder().parent.iterdir()) == []
