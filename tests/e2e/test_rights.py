"""The chart's rights are enough: every service runs with them alone, and nothing is refused.

The audit log says which rules were used; those that a short life does not use are listed here with
what they are for, so that a rule nobody needs is found.
"""

import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from e2e.agent_node import AgentNode
from e2e.metrics_server import APISERVICES, is_available
from e2e.recorded_gpus import make_gpus
from hostile.tenancy import Tenant, share
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.ports import free_port
from slicewise_testbed.runtimes import WITH_CDI
from slicewise_testbed.settings import Settings
from slicewise_testbed.testbed import Testbed, wait_until

pytestmark = pytest.mark.cluster

CHART = Path(__file__).parents[2] / "deploy" / "chart" / "slicewise"
SPACE = "slicewise-system"
# A right that this test gives no occasion for, and the occasion.
RARE = {
    ("slicewise-agent", "delete", "pods"): "gpu-manager's pods that the kubelet has rejected",
    ("slicewise-agent", "patch", "pods"): "flags of gpushare's and gpu-manager's pods",
    ("slicewise-agent", "get", "pods"): "a pod that the watch has not shown yet",
    ("slicewise-agent", "get", "nodes"): "the Node after a conflict, and at a first start",
    ("slicewise-agent", "create", "events"): "a start that is refused",
    ("slicewise-agent", "patch", "events"): "a start that is refused again",
    ("slicewise-agent", "create", "reports"): "checked by the metrics API, of a pod's token",
    ("slicewise-agent", "get", "configmaps"): "kubectl and older agents read the trust at once",
    ("slicewise-scheduler", "patch", "pods"): "pods that others bound, take-overs, quotas",
    ("slicewise-scheduler", "get", "pods"): "a bind whose answer was lost",
    ("slicewise-scheduler", "patch", "events"): "an event that comes again",
    ("slicewise-scheduler", "create", "pods/eviction"): "pods of higher priority without room",
    ("slicewise-scheduler", "list", "poddisruptionbudgets"): "as above",
    ("slicewise-scheduler", "update", "secrets"): "rotation of keys",
    ("slicewise-scheduler", "patch", "configmaps"): "rotation of keys",
    ("slicewise-scheduler", "get", "leases"): "the kube-scheduler, which has another user here",
    ("slicewise-scheduler", "update", "leases"): "the kube-scheduler, as above",
    ("slicewise-scheduler", "patch", "leases"): "the kube-scheduler, as above",
    ("slicewise-metrics-api", "update", "secrets"): "rotation of certificates",
    ("slicewise-metrics-api", "patch", "configmaps"): "rotation of certificates",
    ("slicewise-dashboard", "get", "nodes"): "the page of one node",
    ("slicewise-dashboard", "get", "pods"): "the page of one pod",
    ("slicewise-dashboard", "get", "configmaps"): "the quota",
    ("slicewise-metrics-api", "watch", "nodes"): "begins when the list has ended",
    ("slicewise-scheduler", "get", "configmaps"): "the quota",
}


class Service:
    """One of our programs as the chart's account of it."""

    def __init__(self, plane, account):
        self.plane, self.account = plane, account
        user = f"system:serviceaccount:{SPACE}:{account}"
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{SPACE}"]
        self.config = plane.kubeconfig(user, groups)

    def spawn(self, program, *flags):
        command = [str(Path(sys.executable).with_name("slicewise")), program]
        self.plane.bed.spawn(program, [*command, f"--kubeconfig={self.config.path}", *flags])


def render(plane):
    helm = [plane.binaries.path("helm"), "template", "slicewise", str(CHART), "--namespace", SPACE]
    helm.append("--no-hooks")
    done = subprocess.run(helm, capture_output=True, text=True, check=True, env={"HOME": "/"})
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def uses(event, rule, verb, space):
    about = event["objectRef"]
    named = about["resource"] + (f"/{about['subresource']}" if "subresource" in about else "")
    names = rule.get("resourceNames")
    group = about.get("apiGroup", "")
    return (
        event["verb"] == verb
        and group in rule["apiGroups"]
        and named in rule["resources"]
        and (space is None or about.get("namespace") == space)
        and (names is None or about.get("name") in names or verb in ("list", "watch"))
    )


@pytest.fixture(scope="module")
def events_and_roles(kube_binaries):
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, Settings(audit="Metadata")).start()
        documents = render(plane)
        plane.kubectl("create", "namespace", SPACE)
        wanted = [each for each in documents if each["kind"] in KINDS]
        node = AgentNode(plane, WITH_CDI, make_gpus((2, "NVIDIA A10", 24576)))
        # In place of the rights that the testbed gives to services of the same names.
        plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(wanted))
        live(node, documents)
        yield list(plane.audit_events()), wanted


KINDS = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


def live(node, documents):
    """Every service starts, a pod gets its GPU, and the page shows it."""
    plane = node.plane
    node._user = Service(plane, "slicewise-agent").config
    node.cluster._user = Service(plane, "slicewise-scheduler").config
    node.start_agent()
    node.wait_allocatable("slicewise.io/cores")
    node.start_extender(
        f"--lease={SPACE}/slicewise-extender", f"--signing-secret={SPACE}/slicewise-signing"
    )
    serve_metrics(plane, documents)
    port = free_port()
    address = (f"--address=127.0.0.1:{port}", "--auth=kubernetes")
    Service(plane, "slicewise-dashboard").spawn("dashboard", *address)
    tenant = Tenant(node.cluster, "team")
    tenant.create(share("p", 30, 4096))
    tenant.wait("p", lambda found: found["status"]["phase"] == "Running", 90)
    with plane.api() as api:
        path = f"/api/v1/namespaces/{SPACE}/configmaps/slicewise-ca"
        api.wait_for(path, lambda found: "BEGIN CERTIFICATE" in found["data"]["ca.crt"], 30)
        for each in documents:
            if each["kind"] == "APIService":
                api.wait_for(f"{APISERVICES}/{each['metadata']['name']}", is_available, 60)
    wait_until(lambda: answers(port), 30, lambda: plane.bed.tail("dashboard"))
    wait_until(lambda: has_listed(plane, "slicewise-dashboard", "nodereports"), 30, lambda: "none")
    wait_until(lambda: has_listed(plane, "slicewise-metrics-api", "nodes"), 30, lambda: "none")


def has_listed(plane, account, resource):
    return any(
        account_of(each) == account
        and each["verb"] == "list"
        and each.get("objectRef", {}).get("resource") == resource
        for each in plane.audit_events()
    )


def answers(port):
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
        return answer.status == 200
    return False


def serve_metrics(plane, documents):
    port = free_port()
    outside = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    body = {"metadata": {"name": "slicewise-metrics-api"}, "spec": outside}
    with plane.api() as api:
        api.create(f"/api/v1/namespaces/{SPACE}/services", body)
        for each in documents:
            if each["kind"] == "APIService":
                each["spec"]["service"]["port"] = port
                api.create(APISERVICES, each)
    flags = (f"--secure-port={port}", "--bind-address=127.0.0.1", "--enable-scheduler=false")
    where = (f"--namespace={SPACE}", "--name=slicewise-metrics-api")
    Service(plane, "slicewise-metrics-api").spawn(
        "metrics-api", *flags, *where, f"--ca-configmap={SPACE}/slicewise-ca"
    )


def account_of(event):
    user = event["user"]["username"]
    return user.removeprefix(f"system:serviceaccount:{SPACE}:") if SPACE in user else None


def test_nothing_is_refused_to_our_services(events_and_roles):
    events, _ = events_and_roles
    refused = {
        (account_of(each), each["verb"], each["requestURI"].partition("?")[0])
        for each in events
        if account_of(each) and each.get("responseStatus", {}).get("code") in (401, 403)
    }

    assert {account_of(each) for each in events if account_of(each)} >= {
        "slicewise-agent", "slicewise-scheduler", "slicewise-metrics-api", "slicewise-dashboard"
    }  # fmt: skip
    assert sorted(refused) == []


def test_rules_that_were_not_used_are_known_to_be_rare(events_and_roles):
    events, roles = events_and_roles
    rules = {(each["kind"], each["metadata"]["name"]): each for each in roles}
    unused = []
    for binding in (each for each in roles if each["kind"].endswith("Binding")):
        role = rules.get((binding["roleRef"]["kind"], binding["roleRef"]["name"]))
        if role is None:
            continue
        account = binding["subjects"][0]["name"]
        own = [each for each in events if account_of(each) == account and "objectRef" in each]
        space = role["metadata"].get("namespace")
        unused += [
            (account, verb, resource)
            for rule in role["rules"]
            for verb in rule["verbs"]
            for resource in rule["resources"]
            if resource != "marks"
            and not any(uses(e, {**rule, "resources": [resource]}, verb, space) for e in own)
        ]

    print("unused:", *sorted(set(unused)), sep="\n")
    assert [each for each in sorted(set(unused)) if each not in RARE] == []


def test_nobody_may_proxy_to_nodes_or_read_secrets_of_others(events_and_roles):
    _, roles = events_and_roles
    for role in roles:
        for rule in role.get("rules", ()):
            assert "nodes/proxy" not in rule["resources"]
            if "secrets" in rule["resources"] and rule["verbs"] != ["create"]:
                assert rule["resourceNames"], role["metadata"]["name"]
