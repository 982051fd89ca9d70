"""One cluster for the chart's whole life: install, use, upgrade, rollback, uninstall."""

from collections.abc import Iterator

import pytest

from e2e.chart.chart_cluster import ChartCluster
from slicewise_testbed.binaries import Binaries
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.settings import Settings
from slicewise_testbed.testbed import Testbed


@pytest.fixture(scope="module")
def cluster(kube_binaries: Binaries) -> Iterator[ChartCluster]:
    """A cluster in a network of its own, with the image on its node and nothing installed."""
    with Testbed.start(own_network=True) as bed:
        yield ChartCluster(ControlPlane(bed, kube_binaries, Settings(audit="Metadata")).start())
