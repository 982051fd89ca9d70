"""Hold the limiter to what lets it load into any program: nothing undefined, nothing done at load.

Usage: python check.py FOLDER, where FOLDER holds libslicewise-limit.so.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

MOST_BYTES = 128 << 10
WALK = "dl_iterate_phdr"
# Relocations that the loader settles without looking a name up, and the one of the walk.
PLAIN_RELOCATIONS = ("R_X86_64_RELATIVE", "R_AARCH64_RELATIVE")
FORBIDDEN_SECTIONS = (".init", ".init_array", ".ctors", ".preinit_array", ".tdata", ".tbss")


def run(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def find_load_faults(library: str) -> Iterator[str]:
    """Everything that a loader would have to do, or could fail at."""
    for line in run("nm", "-D", "--undefined-only", library).splitlines():
        if line.split() != ["w", WALK]:
            yield f"undefined: {line.strip()}"
    dynamic = run("readelf", "-dW", library)
    yield from (f"needs a library: {each}" for each in re.findall(r"\(NEEDED\).*", dynamic))
    yield from (f"runs at load time: {each}" for each in re.findall(r"\(INIT\w*\).*", dynamic))
    if "(VERNEED)" in dynamic:
        yield "asks for a version of another library"
    sections = re.findall(r"^\s*\[\s*\d+\]\s+(\S+)", run("readelf", "-SW", library), re.MULTILINE)
    yield from (f"has a section {each}" for each in sections if each in FORBIDDEN_SECTIONS)
    for line in run("readelf", "-rW", library).splitlines():
        kind = re.search(r"R_\w+", line)
        if kind and kind[0] not in PLAIN_RELOCATIONS and not line.rstrip().endswith(f"{WALK} + 0"):
            yield f"relocation by name: {line.strip()}"


def find_export_faults(library: str, here: Path) -> Iterator[str]:
    """Where hooks, list and library disagree about what is exported."""
    hooks = re.findall(r"^HOOK\((\w+)\)$", (here / "src" / "hooks.def").read_text(), re.MULTILINE)
    listed = re.findall(r"^\s+(\w+);$", (here / "exports.map").read_text(), re.MULTILINE)
    printed = run("nm", "-D", "--defined-only", library)
    exported = {line.split()[2] for line in printed.splitlines()}
    if hooks != sorted(hooks):
        yield "hooks.def is not in the order of the names"
    for what, names in (("exports.map", listed), ("the library", exported)):
        for each in sorted({*hooks, "dlsym", "dlvsym"} ^ {*names}):
            yield f"in hooks.def or in {what}, not in both: {each}"


def measure(library: str) -> int:
    """Its size in bytes without what only a debugger reads."""
    with tempfile.TemporaryDirectory() as scratch:
        stripped = Path(scratch) / "stripped.so"
        run("strip", "-o", str(stripped), library)
        return stripped.stat().st_size


def main() -> None:
    """Print every fault and fail, or print what was checked."""
    here = Path(__file__).parents[1]
    library = str(Path(sys.argv[1]) / "libslicewise-limit.so")
    size = measure(library)
    faults = [*find_load_faults(library), *find_export_faults(library, here)]
    if size > MOST_BYTES:
        faults.append(f"{size} bytes, {MOST_BYTES} are allowed")
    if faults:
        sys.exit("\n".join(faults))
    print(f"the limiter needs nothing, does nothing at load time and has {size} bytes")


if __name__ == "__main__":
    main()
