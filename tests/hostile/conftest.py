"""The cluster that the hostile tests share; every test finds it served and without pods."""

from collections.abc import Iterator

import pytest

from hostile.tenancy import Tenancy
from slicewise_testbed.binaries import Binaries
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.runtimes import WITHOUT_CDI
from slicewise_testbed.settings import Settings
from slicewise_testbed.testbed import Testbed


@pytest.fixture(scope="session")
def shared_tenancy(kube_binaries: Binaries) -> Iterator[Tenancy]:
    """One real node of four GPUs with our agent, and an audit log of every request."""
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, Settings(audit="Request")).start()
        yield Tenancy(plane)


@pytest.fixture
def tenancy(shared_tenancy: Tenancy) -> Iterator[Tenancy]:
    """The shared cluster, served as by default, with no pods in it."""
    shared_tenancy.serve()
    yield shared_tenancy
    shared_tenancy.clear()


@pytest.fixture(scope="session")
def shared_plain_tenancy(kube_binaries: Binaries) -> Iterator[Tenancy]:
    """The same with a runtime that knows no CDI."""
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, Settings(audit="Request")).start()
        yield Tenancy(plane, WITHOUT_CDI)


@pytest.fixture(params=["with-cdi", "without-cdi"])
def either_tenancy(request: pytest.FixtureRequest) -> Iterator[Tenancy]:
    """The shared cluster of either runtime, served as by default, with no pods in it."""
    name = "shared_tenancy" if request.param == "with-cdi" else "shared_plain_tenancy"
    found: Tenancy = request.getfixturevalue(name)
    found.serve()
    yield found
    found.clear()
