"""The servers under test: the embedded one always, a real one when there is one."""

import base64
import importlib
import importlib.util
import signal
import ssl
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from conformance.server import Client, Server
from slicewise_playground.cluster import Playground


def pytest_addoption(parser):
    parser.addoption(
        "--kubeconfig", default=None, help="run the conformance suite against this cluster as well"
    )


@pytest.fixture(scope="session")
def embedded(tmp_path_factory) -> Iterator[Server]:
    with Playground() as playground:
        path = tmp_path_factory.mktemp("embedded") / "kubeconfig"
        yield Server("embedded", playground.url, playground.write_kubeconfig(path))


@pytest.fixture(scope="session")
def real(request) -> Iterator[Server]:
    given = request.config.getoption("--kubeconfig", default=None)
    if given:
        yield read_kubeconfig(Path(given))
        return
    if importlib.util.find_spec("slicewise_testbed") is None:
        pytest.skip("no real API server: slicewise_testbed is not installed; pass --kubeconfig")
    with start_alone() as kubeconfig:
        yield read_kubeconfig(kubeconfig)


@pytest.fixture(
    scope="session",
    params=["embedded", pytest.param("real", marks=pytest.mark.cluster)],
)
def server(request) -> Server:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def client(server) -> Iterator[Client]:
    client = Client(server)
    yield client
    client.close()


@pytest.fixture
def namespace(client) -> Iterator[str]:
    name = f"t-{uuid.uuid4().hex[:10]}"
    client.post("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    client.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def pods(namespace) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def maps(namespace) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def node(client) -> Iterator[str]:
    name = f"node-{uuid.uuid4().hex[:8]}"
    client.post("/api/v1/nodes", {"metadata": {"name": name}})
    yield f"/api/v1/nodes/{name}"
    client.delete(f"/api/v1/nodes/{name}")


@contextmanager
def start_alone() -> Iterator[Path]:
    """A real API server without scheduler and controllers, since these would write as well."""
    binaries = importlib.import_module("slicewise_testbed.binaries")
    planes = importlib.import_module("slicewise_testbed.control_plane")
    settings = importlib.import_module("slicewise_testbed.settings")
    testbed = importlib.import_module("slicewise_testbed.testbed")
    # Without the controller that makes service accounts, their admission would refuse all pods.
    flags = ("--disable-admission-plugins=ServiceAccount",)
    with testbed.Testbed.start() as bed:
        wanted = settings.Settings(apiserver_flags=flags)
        plane = planes.ControlPlane(bed, binaries.find_binaries(), wanted).start()
        plane.stop_scheduler()
        bed.stop("kube-controller-manager", signal.SIGKILL)
        # A server that was restarted keeps no history of what came before.
        plane.stop_apiserver()
        plane.start_apiserver()
        yield plane.admin.path


def read_kubeconfig(path: Path) -> Server:
    """The server that a kubeconfig's only context names; kubectl-like, for tests."""
    config = yaml.safe_load(path.read_text())
    cluster = config["clusters"][0]["cluster"]
    user = config["users"][0]["user"]
    context = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"),
        cadata=_decoded(cluster.get("certificate-authority-data")),
    )
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if user.get("client-certificate"):
        context.load_cert_chain(user["client-certificate"], user["client-key"])
    elif user.get("client-certificate-data"):
        pair = path.with_name("conformance-client.pem")
        pair.write_text(
            (_decoded(user["client-certificate-data"]) or "")
            + (_decoded(user["client-key-data"]) or "")
        )
        context.load_cert_chain(pair)
    headers = {"authorization": f"Bearer {user['token']}"} if user.get("token") else {}
    return Server("real", cluster["server"], path, headers, context)


def _decoded(data: str | None) -> str | None:
    """The text behind base64, if there is any."""
    return None if data is None else base64.b64decode(data).decode()
