"""Helm as the testbed builds it, and the chart as it renders with given values."""

import sys
from pathlib import Path

import pytest
import yaml

from slicewise_testbed.binaries import find_binaries

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart" / "slicewise"


@pytest.fixture(scope="session")
def supply():
    """The modules of the folder supply can be imported."""
    sys.path.insert(0, str(ROOT / "supply"))
    yield
    sys.path.remove(str(ROOT / "supply"))


@pytest.fixture(scope="session")
def helm():
    """The helm that `make kube` builds; without it what needs it is left out."""
    binaries = find_binaries()
    if binaries.missing(("helm",)):
        pytest.skip("no helm on this machine; `make kube` builds it")
    return binaries.path("helm")


@pytest.fixture(scope="session")
def render(supply, helm):
    """The objects that the chart makes of values, by kind and name; each is made once."""
    import render_chart  # noqa: PLC0415

    known = {}

    def make(*flags, kubernetes="1.36.0"):
        if (flags, kubernetes) not in known:
            named = ("--namespace", "gpus", *flags)
            text = render_chart.render(helm, *named, kubernetes=kubernetes)
            known[flags, kubernetes] = [each for each in yaml.safe_load_all(text) if each]
        return known[flags, kubernetes]

    return make
