"""Writes the chart's admission policies from what the code knows of resources and marks.

`python supply/render_admission.py` writes the file again; tests/deploy holds it equal to this.
"""

from pathlib import Path

import yaml

from slicewise.admission.policies import PolicySettings, build_policies

FILE = Path(__file__).resolve().parents[1] / "deploy/chart/slicewise/files/admission.yaml"
# The chart's template puts its own values in these places.
PLACES = PolicySettings(
    name="@name@", namespace="@namespace@", agent_account="@agent@", scheduler="@scheduler@"
)


def write_admission() -> str:
    """Every policy by its short name."""
    head = "# Written by supply/render_admission.py from the dialects' own resources and marks.\n"
    return head + yaml.safe_dump(build_policies(PLACES), sort_keys=False, width=100)


if __name__ == "__main__":
    FILE.write_text(write_admission())
