"""Write C for every name of names.txt: a weak stub that answers 801, and the table of entries.

Usage: python stubs.py names.txt > stubs.c
"""

import sys
from pathlib import Path


def main() -> None:
    """Print the file; a function that a source file defines takes its stub's place."""
    lines = Path(sys.argv[1]).read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    print('#include "driver.h"\n')
    for name in sorted({export for _, _, _, export in rows}):
        print(f"EXPORT __attribute__((weak)) CUresult {name}(void);")
        print(f'CUresult {name}(void)\n{{\n    return driver_unknown("{name}");\n}}\n')
    print("const struct entry entries[] = {")
    for base, version, stream, export in rows:
        per_thread = str(stream != "-").lower()
        print(f'    {{"{base}", {version}, {per_thread}, (void *)(uintptr_t){export}}},')
    print("};\nconst unsigned int entries_count = sizeof entries / sizeof entries[0];")


if __name__ == "__main__":
    main()
