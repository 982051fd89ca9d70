"""The page as a process with the rights it is shipped with, over a real API server."""

import http.client
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.gpu_nodes import A10, register_node
from e2e.metrics_server import Fleet, MetricsServer
from reports.values import gpu, node
from slicewise.reports import MeasuredUse, NodeReport
from slicewise_testbed.binaries import Binaries
from slicewise_testbed.browser import Browser, Page
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.ports import free_port
from slicewise_testbed.settings import Settings
from slicewise_testbed.simulated_nodes import SimulatedNodes
from slicewise_testbed.testbed import Testbed, wait_until

pytestmark = pytest.mark.cluster
NAME = "dashboard"
MANIFESTS = Path(__file__).parents[2] / "deploy" / "dashboard.yaml"
ACCOUNT = "system:serviceaccount:kube-system:slicewise-dashboard"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LIMITS = {"slicewise.io/cores": "40", "slicewise.io/memory": "4096"}


@pytest.fixture(scope="module")
def plane(kube_binaries: Binaries) -> Iterator[ControlPlane]:
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, Settings(audit="Metadata")).start()
        # The page is a process here, with the account and the rights that are shipped.
        shipped = yaml.safe_load_all(MANIFESTS.read_text())
        rights = [each for each in shipped if each["kind"] != "Deployment"]
        plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(rights))
        yield plane


@pytest.fixture(scope="module", autouse=True)
def nodes(plane: ControlPlane) -> SimulatedNodes:
    nodes = SimulatedNodes(plane).start()
    nodes.add([register_node(f"n{at}", A10, 2) for at in (1, 2)])
    return nodes


@pytest.fixture(scope="module")
def url(plane: ControlPlane) -> str:
    port = free_port()
    user = plane.kubeconfig(ACCOUNT, ["system:serviceaccounts"])
    command = [str(Path(sys.executable).with_name("slicewise")), "dashboard"]
    where = [f"--kubeconfig={user.path}", f"--address=127.0.0.1:{port}", "--auth=kubernetes"]
    plane.bed.spawn(NAME, [*command, *where])
    url = f"http://127.0.0.1:{port}"
    wait_until(lambda: ask(url, "/readyz") == 200, 60, lambda: plane.bed.tail(NAME, 30))
    return url


@pytest.fixture(scope="module")
def reader(plane: ControlPlane) -> str:
    """The token of an account that may list what the metrics API shows."""
    role = {
        "metadata": {"name": "reader"},
        "rules": [
            {
                "apiGroups": ["metrics.nvidia.com"],
                "resources": ["podresources", "gpuinfos"],
                "verbs": ["list"],
            }
        ],
    }
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": "default"}
    with plane.api() as api:
        api.create(f"{RBAC}/clusterroles", role)
        reference = {"apiGroup": RBAC.split("/")[2], "kind": "ClusterRole", "name": "reader"}
        binding = {
            "metadata": {"name": "reader"},
            "roleRef": reference,
            "subjects": [subject],
        }
        api.create(f"{RBAC}/clusterrolebindings", binding)
    return make_token(plane, "reader")


@pytest.fixture(scope="module")
def page(url: str, reader: str) -> Iterator[Page]:
    """The page in a browser whose reader gave a token."""
    with Browser() as browser:
        page = browser.open(url)
        page.wait("document.querySelector('#ask').open")
        page.ask("document.querySelector('#token').focus()")
        page.type(reader)
        page.press("Enter")
        page.wait("document.querySelectorAll('.gpu').length === 4")
        yield page


@pytest.fixture(scope="module")
def metrics(plane: ControlPlane) -> Iterator[MetricsServer]:
    """The metrics API, which starts when the first test asks for it."""
    server = MetricsServer(plane)
    server.start()
    yield server
    server.remove()


@pytest.fixture
def fleet(metrics: MetricsServer) -> Iterator[Fleet]:
    fleet = Fleet(metrics)
    yield fleet
    fleet.close()


def make_token(plane: ControlPlane, name: str) -> str:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    with plane.api() as api:
        api.create(accounts, {"metadata": {"name": name}})
        token: str = api.create(f"{accounts}/{name}/token", {"spec": {}})["status"]["token"]
    return token


def ask(url: str, path: str, token: str = "") -> int:
    line = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    try:
        line.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        return line.getresponse().status
    except OSError:
        return 0
    finally:
        line.close()


def add_pod(plane: ControlPlane, name: str, limits: dict[str, str], **facts: object) -> None:
    container = {"name": "c", "image": "busybox:local", "resources": {"limits": limits}}
    body = {
        "metadata": {"name": name, **facts},
        # Nobody's scheduler, so that the test alone decides where the pod goes.
        "spec": {"containers": [container], "schedulerName": "nobody"},
    }
    with plane.api() as api:
        api.create("/api/v1/namespaces/default/pods", body)


def bind(plane: ControlPlane, name: str, to: str) -> None:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": to},
    }
    with plane.api() as api:
        api.create(f"/api/v1/namespaces/default/pods/{name}/binding", binding)


def test_only_whoever_may_list_gpus_gets_data(plane, url, reader):
    powerless = make_token(plane, "powerless")

    assert ask(url, "/") == 200
    for path in ("/api/feed", "/api/explain?pod=default/none"):
        assert ask(url, path) == 401
        assert ask(url, path, "not.a.token") == 401
        assert ask(url, path, powerless) == 403
    assert ask(url, "/api/feed", reader) == 200
    assert ask(url, "/api/explain?pod=default/none", reader) == 404


def test_pod_waits_with_its_reason_and_appears_once_it_is_bound(plane, page):
    record = {"containers": {"c": [[1, "GPU-n1-1", 40, 4096]]}, "node": "n1"}
    add_pod(plane, "too-large", {**LIMITS, "slicewise.io/memory": "99999"})
    add_pod(plane, "fits", LIMITS, annotations={"slicewise.io/allocation": json.dumps(record)})
    why = "document.querySelector('#waiting [data-pod=\"default/too-large\"] .why')?.textContent"
    page.wait(f"({why} || '').includes('No GPU is large enough')")

    bind(plane, "fits", "n1")

    page.wait("document.querySelectorAll('[data-pod=\"default/fits\"].piece').length === 2")
    place = "document.querySelector('.piece[data-pod=\"default/fits\"]').closest('.gpu').dataset"
    assert page.ask(f"{place}.node + ' ' + {place}.at") == "n1 1"


def test_node_that_joins_and_one_that_leaves_are_seen(nodes, page):
    nodes.add([register_node("n3", A10, 1)])
    page.wait("document.querySelectorAll('.head[data-node=n3]').length === 1")

    nodes.remove("n3")

    page.wait("!document.querySelector('.head[data-node=n3]')")


def proxied(plane: ControlPlane) -> int:
    """How often the page has asked agents through the node proxy."""
    return sum(
        event["user"]["username"] == ACCOUNT
        and event.get("objectRef", {}).get("subresource") == "proxy"
        for event in plane.audit_events()
    )


def busy(cores: int) -> NodeReport:
    """What the agent of the first node reports when this much of its first GPU is used."""
    return node("n1", gpus=(gpu("GPU-n1-0", use=MeasuredUse(memory_mib=2048, cores=cores)),))


def test_figures_come_from_the_metrics_api_and_agents_are_asked_no_more(plane, page, fleet):
    shown = "document.querySelector('.gpu[data-node=n1][data-at=\"0\"] .used i')?.style.width"
    fleet.report(busy(35))
    page.wait(f"{shown} === '35%'", 120)

    fleet.report(busy(60))

    page.wait(f"{shown} === '60%'", 30)
    assert proxied(plane) == 0


def test_node_whose_agent_falls_silent_is_told_and_gets_well(page, metrics, fleet):
    badge = "document.querySelector('.head[data-node=n2] .badge')?.textContent"
    fleet.report(node("n2", gpus=(gpu("GPU-n2-0"),)))
    wait_until(lambda: metrics.health().get("n2") == "True", 30, lambda: "never healthy")
    fleet.stop("n2")
    page.wait(f"{badge} === 'agent silent'", 120)

    fleet.report(node("n2", gpus=(gpu("GPU-n2-0"),)))

    page.wait(f"{badge} === undefined", 60)
