"""Every lookup in NVIDIA's own driver libraries, with the limiter in between and without it.

The libraries are Debian's packages of the component non-free, unpacked and not installed. They
load without a GPU. A machine whose package sources cannot give them fails these tests.
"""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from slicewise_testbed.binaries import cache_folder
from slicewise_testbed.cuda import ROOT, build, compile_program, limiter

pytestmark = pytest.mark.cluster

LINES = [
    line.split()
    for line in (ROOT / "native/cuda/names.txt").read_text().splitlines()
    if not line.startswith("#")
]
BASES = sorted({base for base, *_ in LINES})
HOOKS = re.findall(
    r"^HOOK\((cu\w+)\)$", (ROOT / "native/limiter/src/hooks.def").read_text(), re.MULTILINE
)


def with_non_free(text: str) -> str:
    """Package sources of either form, with the component non-free added to Debian's own."""
    text = re.sub(r"^(Components: .*\bmain\b.*)$", r"\1 non-free", text, flags=re.MULTILINE)
    return re.sub(r"^(deb .*debian.* main\b.*)$", r"\1 non-free", text, flags=re.MULTILINE)


# Drivers by their series: the package, and the suite where it is not the machine's own.
PACKAGES = {
    "470": ("libnvidia-tesla-470-cuda1", ""),
    "525": ("libnvidia-tesla-cuda1", ""),
    "535": ("libcuda1", ""),
    "550": ("libcuda1", "trixie"),
    # 555 at the time of writing; newer ones come here first.
    "experimental": ("libcuda1", "experimental"),
}


def of_suite(text: str, suite: str) -> str:
    """The same sources for another suite, without updates, which not every suite has."""
    text = re.sub(r"^Suites: .*$", f"Suites: {suite}", text, flags=re.MULTILINE)
    return re.sub(r"^(deb \S*(?: \[.*\])? \S+) \S+ main", rf"\1 {suite} main", text)


@cache
def nvidia_driver(series: str = "535") -> Path:
    """NVIDIA's libcuda.so.1 of a series, from the cache or from its package."""
    package, suite = PACKAGES[series]
    folder = cache_folder().parent / f"libcuda1-package-{series}"
    found = sorted(folder.rglob("libcuda.so.1"))
    if found:
        return found[0]
    lists, sources = folder / "lists" / "partial", folder / "sources"
    for each in (lists, sources, folder / "cache" / "archives" / "partial"):
        each.mkdir(parents=True, exist_ok=True)
    for each in Path("/etc/apt/sources.list.d").glob("debian*"):
        text = with_non_free(each.read_text())
        (sources / each.name).write_text(of_suite(text, suite) if suite else text)
    plain = Path("/etc/apt/sources.list")
    text = with_non_free(plain.read_text()) if plain.exists() else ""
    (folder / "sources.list").write_text(of_suite(text, suite) if suite else text)
    options = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": sources,
        "Dir::State::lists": lists.parent,
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
    }
    flags = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    for command in (["update", "-qq"], ["download", "-qq", package]):
        done = subprocess.run(
            ["apt-get", *flags, *command], cwd=folder, capture_output=True, text=True, check=False
        )
    archives = sorted(folder.glob(f"{package}_*.deb"))
    if not archives:
        pytest.fail(f"{package} {suite} of non-free cannot be had: {done.stderr}")
    subprocess.run(["dpkg-deb", "--extract", archives[0], folder], check=True)
    return sorted(folder.rglob("libcuda.so.1"))[0]


def ask(library: Path, preload: bool) -> tuple[list[str], int, int]:
    """The answers by name, how many questions, and how many the limiter answered."""
    done = subprocess.run(
        [compile_program("questions"), library],
        env={"LD_PRELOAD": str(limiter())} if preload else {},
        input="\n".join([*BASES, "cuMemAlloc_v2", "cuLaunchKernel_ptsz", "cuNoSuchThing"]),
        capture_output=True,
        text=True,
        check=True,
    )
    asked, hooked = map(int, done.stderr.split())
    return done.stdout.splitlines(), asked, hooked


@pytest.mark.parametrize("series", PACKAGES)
def test_answers_of_nvidias_driver_are_its_own_but_for_the_hooks(series):
    plain, asked, none = ask(nvidia_driver(series), preload=False)
    limited, _, hooked = ask(nvidia_driver(series), preload=True)

    assert plain == limited
    # Before CUDA 12 there is one form of the question, and not two.
    assert asked > 50_000
    assert none == 0
    assert hooked > 1000


def test_answers_of_the_stand_in_are_its_own_but_for_the_hooks():
    library = build("cuda") / "libcuda.so.1"
    plain, *_ = ask(library, preload=False)
    limited, _, hooked = ask(library, preload=True)

    assert plain == limited
    assert hooked > 1000


def test_stand_in_answers_as_nvidias_driver_does_for_what_both_have():
    driver, *_ = ask(nvidia_driver(), preload=False)
    stand_in, *_ = ask(build("cuda") / "libcuda.so.1", preload=False)
    # Forms that are newer than that driver make its answers differ.
    newer = {base for base, version, *_ in LINES if int(version) > 12020}
    names = [line.split()[0] for line in driver]
    differing = [
        name
        for name, one, other in zip(names, driver, stand_in, strict=True)
        if one != other and name not in newer
    ]

    assert differing == []


@pytest.mark.parametrize("series", PACKAGES)
def test_every_hooked_name_that_the_driver_has_is_answered_by_a_hook(series):
    done = subprocess.run(
        [compile_program("hooked"), nvidia_driver(series)],
        env={"LD_PRELOAD": str(limiter())},
        input="\n".join(HOOKS),
        capture_output=True,
        text=True,
        check=True,
    )
    exported = subprocess.check_output(["nm", "-D", nvidia_driver(series)], text=True)
    has = {line.split()[-1] for line in exported.splitlines()}

    answered = {line.split()[0]: line.split()[1] == "1" for line in done.stdout.splitlines()}
    assert answered == {name: name in has for name in HOOKS}


def test_cuinit_says_no_device_as_the_driver_does():
    code = f"import ctypes, sys; sys.exit(ctypes.CDLL('{nvidia_driver()}').cuInit(0))"
    results = [
        subprocess.run(["python3", "-c", code], env=environment, check=False).returncode
        for environment in ({}, {"LD_PRELOAD": str(limiter())})
    ]

    assert results == [100, 100]
