import pytest

from slicewise_testbed import versions
from slicewise_testbed.binaries import cache_folder, find_binaries
from slicewise_testbed.errors import TestbedError

OWN = """module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

require (
	example.test/other v1.2.3
	k8s.io/api v0.0.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/client-go => ./staging/src/k8s.io/client-go
)
"""


@pytest.mark.parametrize("text", ["v1.34.10", "v1.34.x", "v1.34", "1.34"])
def test_version_is_found_by_its_minor_number(monkeypatch, text):
    monkeypatch.setenv(versions.VARIABLE, text)

    assert versions.chosen_version() == "v1.34.10"


def test_default_version_needs_no_word(monkeypatch):
    monkeypatch.delenv(versions.VARIABLE, raising=False)

    assert versions.chosen_version() == versions.DEFAULT


def test_unknown_version_is_refused_with_those_that_are_known(monkeypatch):
    monkeypatch.setenv(versions.VARIABLE, "v1.12")

    with pytest.raises(TestbedError, match=r"'v1\.12': expected one of v1\.30\.\d+, .*v1\.36\.4"):
        versions.chosen_version()


def test_versions_never_share_a_cache_folder_or_given_binaries(monkeypatch):
    folders = {cache_folder(each) for each in versions.known_versions()}
    monkeypatch.setenv("KUBEBUILDER_ASSETS", "/assets")
    monkeypatch.setenv(versions.VARIABLE, "v1.34.x")

    assert len(folders) == len(versions.known_versions()) >= 4
    assert find_binaries().folders == (cache_folder("v1.34.10"),)


def test_derived_module_keeps_the_versions_and_replaces_what_is_published_beside():
    derived = versions.derive_module(OWN, "v1.34.10")

    assert derived.startswith("module slicewise.test/kube\n\ngo 1.24.0\n\ngodebug default=go1.24\n")
    assert "example.test/other v1.2.3" in derived
    assert "require k8s.io/kubernetes v1.34.10\n" in derived
    assert "\tk8s.io/client-go => k8s.io/client-go v0.34.10\n" in derived
    assert "./staging" not in derived


def test_other_replaces_are_refused_rather_than_dropped():
    other = OWN.replace("replace (", "replace a => b v1.0.0\n\nreplace (")

    with pytest.raises(TestbedError, match="one block of replaces"):
        versions.derive_module(other, "v1.34.10")


@pytest.mark.parametrize("version", sorted({*versions.known_versions()} - {versions.DEFAULT}))
def test_pins_name_kubernetes_and_what_is_published_beside_it_and_nothing_else(version):
    lines = (versions.FOLDER / f"{version}.sum").read_text().splitlines()
    beside = f"v0.{version.removeprefix('v1.')}"

    assert any(line.startswith(f"k8s.io/kubernetes {version} h1:") for line in lines)
    for line in lines:
        module, number, digest = line.split()
        assert number.removesuffix("/go.mod") == (version if module == versions.MODULE else beside)
        assert digest.startswith("h1:")
