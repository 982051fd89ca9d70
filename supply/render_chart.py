"""Writes what follows from the code and the chart: the extender's entry, and plain manifests.

`python supply/render_chart.py` writes the files again; tests/deploy holds them equal to this.
"""

import subprocess
import sys
from pathlib import Path

import yaml

from slicewise.dialects.scheduler_config import ALL, build_config

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
CHART = DEPLOY / "chart" / "slicewise"
EXTENDER = CHART / "files" / "extender.yaml"
MANIFESTS = DEPLOY / "slicewise.yaml"
PARTS = ("metrics-api", "dashboard")
"""Parts of the chart that some install by themselves, each by its set of values."""
NAMESPACE = "slicewise-system"
KUBERNETES = "1.36.0"
_URL = "http://127.0.0.1:3456"


def write_extender() -> str:
    """The extender's entry in the scheduler's configuration, with every resource of the code."""
    entries = build_config(ALL, _URL)["extenders"]
    head = "# Written by supply/render_chart.py from the dialects' own list of resources.\n"
    return head + yaml.safe_dump(entries, sort_keys=False)


def write_manifests(helm: str) -> str:
    """What `kubectl apply` takes: the namespace, and the chart with its default values."""
    rendered = render(helm, "--namespace", NAMESPACE, "--skip-tests", "--no-hooks")
    labels = "{pod-security.kubernetes.io/enforce: privileged}"
    namespace = (
        "# Rendered from deploy/chart/slicewise by supply/render_chart.py; edit the chart.\n"
        "apiVersion: v1\nkind: Namespace\n"
        f"metadata:\n  name: {NAMESPACE}\n  labels: {labels}\n"
    )
    return namespace + rendered


def find_part(name: str) -> Path:
    """Where the manifests of one part are."""
    return DEPLOY / f"{name}.yaml"


def write_part(helm: str, name: str) -> str:
    """One part of the chart, in kube-system."""
    values = str(CHART / "ci" / f"{name}-values.yaml")
    where = ("--namespace", "kube-system", "--values", values)
    head = "# Rendered from deploy/chart/slicewise by supply/render_chart.py; edit the chart.\n"
    return head + render(helm, *where, "--skip-tests", "--no-hooks")


def render(helm: str, *flags: str, kubernetes: str = KUBERNETES) -> str:
    """What helm makes of the chart; a failure is an error that carries helm's words."""
    command = [helm, "template", "slicewise", str(CHART), "--kube-version", kubernetes, *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr.strip())
    return done.stdout


def main() -> None:
    """Write every file; the only argument is the helm to run."""
    EXTENDER.write_text(write_extender())
    MANIFESTS.write_text(write_manifests(sys.argv[1]))
    for name in PARTS:
        find_part(name).write_text(write_part(sys.argv[1], name))


if __name__ == "__main__":
    main()
