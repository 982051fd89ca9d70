"""Compare what the library exports, and its structures, with what the bindings expect.

Usage: python check.py FOLDER, where FOLDER holds libnvidia-ml.so.1 and layout.
"""

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import pynvml

# C's name of each structure, and the bindings' class.
STRUCTURES = {
    "nvmlPciInfo_t": pynvml.nvmlPciInfo_t,
    "nvmlMemory_t": pynvml.c_nvmlMemory_t,
    "nvmlMemory_v2_t": pynvml.c_nvmlMemory_v2_t,
    "nvmlUtilization_t": pynvml.c_nvmlUtilization_t,
    "nvmlProcessInfo_t": pynvml.c_nvmlProcessInfo_t,
    "nvmlProcessUtilizationSample_t": pynvml.c_nvmlProcessUtilizationSample_t,
    "nvmlSetMemoryLimits_v1_t": pynvml.c_nvmlSetMemoryLimits_v1_t,
    "nvmlGetMemoryLimits_v1_t": pynvml.c_nvmlGetMemoryLimits_v1_t,
    "nvmlEventData_t": pynvml.c_nvmlEventData_t,
    "nvmlFieldValue_t": pynvml.c_nvmlFieldValue_t,
    "nvmlValue_t": pynvml.c_nvmlValue_t,
}
VERSION = "libnvidia-ml.so.1"


def list_exports(library: Path) -> set[str]:
    """The functions that the library exports, which must all carry its version."""
    printed = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout
    functions = {line.split()[2] for line in printed.splitlines() if " T " in line}
    plain = {name for name in functions if not name.endswith(f"@@{VERSION}")}
    if plain:
        sys.exit(f"exported without version {VERSION}: {sorted(plain)}")
    return {name.split("@")[0] for name in functions}


def list_declared(source: Path) -> set[str]:
    """The functions that the list of exports names."""
    return set(re.findall(r"^\s+(nvml\w+);$", source.read_text(), re.MULTILINE))


def list_layout(program: Path) -> dict[str, int]:
    """Sizes and places as the C compiler sees them."""
    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    return {name: int(size) for name, size in map(str.split, printed.splitlines())}


def list_expected() -> dict[str, int]:
    """Sizes and places as the bindings see them."""
    expected = {}
    for name, structure in STRUCTURES.items():
        expected[name] = ctypes.sizeof(structure)
        if not issubclass(structure, ctypes.Union):
            for field, *_ in structure._fields_:
                expected[f"{name}.{field}"] = getattr(structure, field).offset
    return expected


def compare(what: str, ours: object, theirs: object) -> list[str]:
    """A line of complaint when the two differ."""
    return [] if ours == theirs else [f"{what}: ours {ours}, expected {theirs}"]


def main() -> None:
    """Print every difference and fail, or print what was compared."""
    folder, here = Path(sys.argv[1]), Path(__file__).parents[1]
    exports, layout, expected = (
        list_exports(folder / VERSION),
        list_layout(folder / "layout"),
        list_expected(),
    )
    declared = list_declared(here / "exports.map")
    complaints = compare("exports", sorted(exports), sorted(declared))
    for name in sorted({*layout, *expected}):
        complaints += compare(name, layout.get(name), expected.get(name))
    if complaints:
        sys.exit("\n".join(complaints))
    print(f"{len(exports)} exports and {len(layout)} sizes and places agree")


if __name__ == "__main__":
    main()
