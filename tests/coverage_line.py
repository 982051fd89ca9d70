"""Prints what slipcover measured in one line: how much of the code the tests ran."""

import json
import sys
from pathlib import Path

summary = json.loads(Path(sys.argv[1]).read_text())["summary"]
lines = summary["covered_lines"] + summary["missing_lines"]
share = f"{summary['percent_covered']:.1f} % of {lines:,} lines"
print(f"coverage: {share}, without the processes that tests start")
