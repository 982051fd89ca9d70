import base64
import hashlib
import os
import tarfile

import pytest

from slicewise_testbed import chromium
from slicewise_testbed.errors import TestbedError


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A machine with an empty cache, whose npm and node are the test's own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(chromium.OVERRIDE, raising=False)
    monkeypatch.setattr(chromium.shutil, "which", lambda tool: found(folder / tool))
    return folder


def found(path):
    return str(path) if path.exists() else None


def add_tool(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def pack(folder):
    """A package with a browser and an archive in it, as npm would hand it over."""
    inside = folder / "package" / "bin"
    inside.mkdir(parents=True)
    (inside / "chromium.br").write_text("#!/bin/sh\n")
    (folder / "lib").mkdir()
    (folder / "lib" / "libone.so").write_text("one")
    with tarfile.open(inside / "extra.tar.br", "w") as archive:
        archive.add(folder / "lib", "lib")
    with tarfile.open(folder / "made.tgz", "w:gz") as archive:
        archive.add(folder / "package", "package")
    return folder / "made.tgz"


def test_browser_is_fetched_once_and_unpacked(tools, tmp_path, monkeypatch):
    package = pack(tmp_path)
    digest = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    monkeypatch.setattr(chromium, "DIGEST", digest)
    add_tool(tools, "npm", f"echo asked >> {tmp_path}/asked; cp {package} fetched.tgz")
    add_tool(tools, "node", 'cp "$3" "$4"')

    first, second = chromium.ensure_chromium(), chromium.ensure_chromium()

    assert first == second
    assert os.access(first.path, os.X_OK)
    assert (first.path.parent / "lib" / "libone.so").read_text() == "one"
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_package_other_than_the_pinned_one_is_refused(tools, tmp_path):
    add_tool(tools, "npm", f"cp {pack(tmp_path)} fetched.tgz")
    add_tool(tools, "node", "exit 0")

    with pytest.raises(TestbedError, match=r"sha512 is .*, expected 4ZKeAQQa"):
        chromium.ensure_chromium()
    assert not (chromium.cache_folder() / "ready").exists()


def test_machine_without_npm_is_told_what_to_do(tools):
    with pytest.raises(TestbedError, match=r"no npm: install Node\.js, or name a Chrom"):
        chromium.ensure_chromium()


def test_failure_to_fetch_is_told(tools):
    add_tool(tools, "npm", "echo no network >&2; exit 1")
    add_tool(tools, "node", "exit 0")

    with pytest.raises(TestbedError, match="no network"):
        chromium.ensure_chromium()


def test_named_browser_comes_first(tools, monkeypatch):
    monkeypatch.setenv(chromium.OVERRIDE, "/opt/chrome")

    assert str(chromium.ensure_chromium().path) == "/opt/chrome"


def test_other_processors_need_a_browser_of_their_own(tools, monkeypatch):
    monkeypatch.setattr(chromium.platform, "machine", lambda: "aarch64")

    with pytest.raises(TestbedError, match=r"aarch64.*SLICEWISE_CHROMIUM"):
        chromium.ensure_chromium()
