"""The kubectl plugins as single files: they unpack themselves once and run what they hold."""

import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def single_files(supply):
    import single_files  # noqa: PLC0415

    return single_files


def make(single_files, folder, python=sys.version_info[:2]):
    """A file whose one module prints its arguments."""
    site = folder / "site"
    site.mkdir()
    (site / "hello.py").write_text("import sys\ndef main():\n    print(sys.argv, __file__)\n")
    plugin = single_files.Plugin("kubectl-hello", "hello", "main", "Says hello")
    target = folder / plugin.file
    target.write_bytes(single_files.pack_plugin(plugin, site, tuple(python)))
    target.chmod(0o755)
    return target


def run(file, home, *arguments):
    return subprocess.run(
        [sys.executable, str(file), *arguments],
        env={**os.environ, "XDG_CACHE_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_file_runs_its_function_out_of_the_cache_that_it_fills_once(single_files, tmp_path):
    file = make(single_files, tmp_path)

    first, second = (run(file, tmp_path / "cache", "--all") for _ in range(2))

    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert "['kubectl-hello', '--all']" in first.stdout
    (unpacked,) = (tmp_path / "cache" / "slicewise" / "plugins").iterdir()
    assert str(unpacked) in first.stdout


def test_file_for_another_python_says_so(single_files, tmp_path):
    done = run(make(single_files, tmp_path, (3, 1)), tmp_path / "cache")

    assert done.returncode == 1
    assert "this file is for Python 3.1" in done.stderr


def test_equal_modules_give_equal_files(single_files, tmp_path):
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        made.append(make(single_files, tmp_path / name).read_bytes())

    assert made[0] == made[1]


def test_manifest_names_every_architecture_with_its_hash(single_files):
    plugin = single_files.PLUGINS[0]

    manifest = single_files.write_manifest(plugin, "0.1.0", {"amd64": "aa", "arm64": "bb"})

    assert manifest["metadata"]["name"] == "slicewise"
    platforms = manifest["spec"]["platforms"]
    assert [each["sha256"] for each in platforms] == ["aa", "bb"]
    assert platforms[1]["selector"]["matchLabels"] == {"os": "linux", "arch": "arm64"}
    assert platforms[0]["uri"].endswith("/v0.1.0/slicewise-linux-amd64.tar.gz")


def test_plugins_name_functions_that_there_are(single_files):
    from importlib import import_module  # noqa: PLC0415

    for plugin in single_files.PLUGINS:
        assert callable(getattr(import_module(plugin.module), plugin.function))
