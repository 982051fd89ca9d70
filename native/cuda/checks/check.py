"""Compare what the CUDA stand-in exports, and its structures, with the recorded facts.

Usage: python check.py FOLDER, where FOLDER holds libcuda.so.1 and layout.
layout.txt has the sizes and places of NVIDIA's headers, which tests/native compares with them.
"""

import subprocess
import sys
from pathlib import Path


def run(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Print every difference and fail, or print what was compared."""
    folder, here = Path(sys.argv[1]), Path(__file__).parent
    printed = run("nm", "-D", "--defined-only", str(folder / "libcuda.so.1"))
    exports = {line.split()[2] for line in printed.splitlines()}
    lines = (here.parent / "names.txt").read_text().splitlines()
    names = {line.split()[3] for line in lines if not line.startswith("#")}
    complaints = [f"exported or named, not both: {each}" for each in sorted(exports ^ names)]
    layout = run(str(folder / "layout")).splitlines()
    expected = (here / "layout.txt").read_text().splitlines()
    complaints += [f"size or place: {each}" for each in sorted({*layout} ^ {*expected})]
    if complaints:
        sys.exit("\n".join(complaints))
    print(f"{len(exports)} exports and {len(layout)} sizes and places agree")


if __name__ == "__main__":
    main()
