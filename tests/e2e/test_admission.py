"""Every admission policy on a real API server: what it denies, what it allows, and to whom.

Everything here holds twice: where the API server evaluates policies, and where it asks the webhook,
with the chart's registrations, its account and its rights.
"""

import json
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from admission.cases import (
    CARRIED,
    FORGERIES,
    GPU_LIMITS,
    KEPT,
    LABELS,
    MARKS,
    OPEN,
    SERVED,
    UNSERVED,
    devices,
    pod,
)
from slicewise_testbed.api import Api, ApiError
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.ports import free_port
from slicewise_testbed.testbed import Testbed, wait_until

pytestmark = pytest.mark.cluster

CHART = Path(__file__).parents[2] / "deploy" / "chart" / "slicewise"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNT = {"kind": "ServiceAccount", "namespace": "kube-system"}
PODS = "/api/v1/namespaces/team/pods"
MERGED = {"Content-Type": "application/merge-patch+json"}
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
RIGHTS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


class TokenApi(Api):
    """A ServiceAccount's view of the API server."""

    def __init__(self, config, token):
        super().__init__(config)
        self._tls = ssl.create_default_context(cafile=config.authority)
        self._token = token

    def raw(self, method, path, body=None, headers=None):
        bearer = {"Authorization": f"Bearer {self._token}"}
        return super().raw(method, path, body, {**(headers or {}), **bearer})


class Guarded:
    """A control plane with our policies in force, a tenant, and the accounts of our services."""

    def __init__(self, plane, way):
        self.plane, self.admin = plane, plane.api()
        if way == "policies":
            self.command("--visible-devices")
        else:
            self.serve_webhook()
        for name in ("team", "left-alone"):
            self.admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
        label = {"metadata": {"labels": {"slicewise.io/admission": "ignore"}}}
        self.admin.patch("/api/v1/namespaces/left-alone", label)
        self._grant("tenant", {"kind": "User", "name": "mallory"}, *_tenant_rules())
        extender = {**ACCOUNT, "name": "slicewise-extender"}
        self._grant("extender", extender, *_extender_rules())
        self._grant("agent", {**ACCOUNT, "name": "slicewise-agent"}, *_agent_rules())
        for name in ("slicewise-extender", "slicewise-agent"):
            path = "/api/v1/namespaces/kube-system/serviceaccounts"
            self.admin.create(path, {"metadata": {"name": name}})
        for name in ("one", "two"):
            self.admin.create("/api/v1/nodes", {"metadata": {"name": name}})
        self.tenant = plane.api(plane.kubeconfig("mallory"))
        config = plane.kubeconfig("nobody")
        self.extender = TokenApi(config, self._token("slicewise-extender", None))
        self.agent = TokenApi(config, self._token("slicewise-agent", self._run_agent("one")))
        self.nodeless = TokenApi(config, self._token("slicewise-agent", None))
        self.accounts = (self.extender, self.agent, self.nodeless)
        self.told = []
        wait_until(self._in_force, 30, lambda: f"policies are not in force: {self.told}")

    def command(self, *words):
        """Apply what `slicewise admission-policies` prints."""
        program = Path(sys.executable).with_name("slicewise")
        printed = subprocess.run(
            [program, "admission-policies", *words], capture_output=True, text=True, check=True
        ).stdout
        self.plane.kubectl("apply", "-f", "-", stdin=printed)

    def serve_webhook(self):
        """Run the webhook as its account, registered as the chart does it for older clusters."""
        values = ("mutation=webhook", "validation=webhook", "visibleDevices=true")
        done = subprocess.run(
            [self.plane.binaries.path("helm"), "template", "slicewise", str(CHART),
             "--namespace=kube-system", *(f"--set=admission.{each}" for each in values)],
            capture_output=True, text=True, check=True, env={"HOME": "/"},
        )  # fmt: skip
        documents = [each for each in yaml.safe_load_all(done.stdout) if each]
        rights = [
            each
            for each in documents
            if each["kind"] in RIGHTS and each["metadata"]["name"] == "slicewise-webhook"
        ]
        self._apply(rights)
        registered = [each for each in documents if each["kind"] in WEBHOOKS]
        # The conditions are what spares newer servers the question; they must be understood.
        self._apply(registered, "--dry-run=server")
        port = free_port()
        for each in registered:
            (webhook,) = each["webhooks"]
            path = webhook["clientConfig"].pop("service")["path"]
            webhook["clientConfig"]["url"] = f"https://localhost:{port}{path}"
            # Servers before 1.30 ask about everything, and the webhook itself sees what matters.
            webhook.pop("matchConditions", None)
        self._apply(registered)
        account = "system:serviceaccount:kube-system:slicewise-webhook"
        config = self.plane.kubeconfig(account, ["system:serviceaccounts"])
        program = str(Path(sys.executable).with_name("slicewise"))
        flags = (f"--kubeconfig={config.path}", f"--address=127.0.0.1:{port}")
        self.plane.bed.spawn("webhook", [program, "admission-webhook", *flags])

    def _apply(self, documents, *flags):
        text = yaml.safe_dump_all(documents)
        self.plane.kubectl("apply", "-f", "-", *flags, stdin=text)

    def _in_force(self):
        probes = [
            pod("probe", annotations={"slicewise.io/allocation": "{}"}),
            pod("probe", limits={"nvidia.com/gpu": "1"}, nodeName="one"),
            pod("probe", limits={"nvidia.com/gpus": "1"}),
            devices("all"),
        ]
        query = f"{PODS}?dryRun=All"
        made = self.tenant.raw("POST", query, pod("probe", limits={"nvidia.com/gpu": "1"}))
        stopped = self.nodeless.raw("PATCH", "/api/v1/nodes/one/status?dryRun=All", {}, MERGED)
        self.told = [self.tenant.raw("POST", query, each) for each in probes] + [stopped, made]
        named = json.loads(made[1]).get("spec", {}).get("schedulerName") == "slicewise-scheduler"
        return named and all(code >= 400 for code, _ in self.told[:-1])

    def _grant(self, name, subject, *rules):
        role = {"metadata": {"name": name}, "rules": list(rules)}
        self.admin.create(f"{RBAC}/clusterroles", role)
        group = {"apiGroup": ""} if subject["kind"] == "ServiceAccount" else {}
        reference = {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
        binding = {
            "metadata": {"name": name},
            "roleRef": reference,
            "subjects": [{**subject, **group}],
        }
        self.admin.create(f"{RBAC}/clusterrolebindings", binding)

    def _run_agent(self, node):
        body = pod(f"agent-{node}", nodeName=node)
        body["spec"]["serviceAccountName"] = "slicewise-agent"
        made = self.admin.create("/api/v1/namespaces/kube-system/pods", body)
        return made["metadata"]

    def _token(self, account, bound):
        spec = {}
        if bound is not None:
            meant = {"kind": "Pod", "apiVersion": "v1", "name": bound["name"], "uid": bound["uid"]}
            spec = {"boundObjectRef": meant}
        path = f"/api/v1/namespaces/kube-system/serviceaccounts/{account}/token"
        return self.admin.create(path, {"spec": spec})["status"]["token"]

    def clear(self):
        for each in self.admin.get(PODS)["items"]:
            path = f"{PODS}/{each['metadata']['name']}"
            self.admin.delete(path, gracePeriodSeconds=0)


def _tenant_rules():
    """More than `edit`: a tenant who may also write the status and bind."""
    resources = ["pods", "pods/status", "pods/binding", "bindings", "replicationcontrollers"]
    return ({"apiGroups": [""], "resources": resources, "verbs": ["*"]},)


def _extender_rules():
    return (
        {"apiGroups": ["slicewise.io"], "resources": ["marks"], "verbs": ["write"]},
        {"apiGroups": [""], "resources": ["pods", "pods/binding"], "verbs": ["*"]},
    )


def _agent_rules():
    slices = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["*"]}
    nodes = {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["get", "patch"]}
    return (*_extender_rules(), nodes, slices)


# Policies that change pods are newer than those that only refuse them.
POLICIES = pytest.param("policies", marks=pytest.mark.since(36))


@pytest.fixture(scope="module", params=[POLICIES, "webhook"])
def shared_guard(request, kube_binaries):
    with Testbed.start() as bed:
        guarded = Guarded(ControlPlane(bed, kube_binaries).start(), request.param)
        yield guarded
        for each in (guarded.admin, guarded.tenant, *guarded.accounts):
            each.close()


@pytest.fixture
def guard(shared_guard):
    yield shared_guard
    shared_guard.clear()


def denied(match, ask, *words, **facts):
    with pytest.raises(ApiError, match=match) as refusal:
        ask(*words, **facts)
    return refusal.value


def test_tenant_may_create_no_pod_with_any_mark(guard):
    for mark in MARKS:
        denied(f"written by Slicewise alone: {mark}", guard.tenant.create, PODS,
               pod(annotations={mark: "x"}))  # fmt: skip
    for mark in LABELS:
        denied(f"these labels are written by Slicewise alone: {mark}", guard.tenant.create, PODS,
               pod(labels={mark: "x"}))  # fmt: skip


def test_wishes_and_other_annotations_are_open_to_tenants(guard):
    limits = {"slicewise.io/gpu": "1"}
    made = guard.tenant.create(
        PODS, pod(limits=limits, annotations=dict.fromkeys(OPEN, "x"), labels={"app": "x"})
    )

    assert set(OPEN) <= set(made["metadata"]["annotations"])
    guard.tenant.patch(f"{PODS}/p", {"metadata": {"annotations": {"note": "mine"}}})


@pytest.mark.parametrize("path", ["", "/status"])
def test_tenant_may_not_add_change_or_remove_marks_of_a_pod(guard, path):
    guard.extender.create(PODS, pod(**KEPT))
    for change in FORGERIES:
        ask = guard.tenant.patch
        denied("written by Slicewise alone", ask, f"{PODS}/p{path}", {"metadata": change})
    harmless = {"metadata": {"annotations": {"note": "x"}}, "status": {"message": "m"}}

    found = guard.tenant.patch(f"{PODS}/p{path}", harmless)

    assert found["metadata"]["annotations"]["slicewise.io/allocation"] == "{}"


@pytest.mark.parametrize("path", [f"{PODS}/p/binding", "/api/v1/namespaces/team/bindings"])
def test_binding_of_a_tenant_may_carry_no_marks(guard, path):
    guard.tenant.create(PODS, pod())
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "one"}}
    forged = {**body, "metadata": {"name": "p", "annotations": {"slicewise.io/allocation": "{}"}}}

    denied("written by Slicewise alone: slicewise.io/allocation", guard.tenant.create, path, forged)
    guard.tenant.create(path, body)
    assert guard.admin.get(f"{PODS}/p")["spec"]["nodeName"] == "one"


def test_extender_binds_with_its_record_and_administrators_are_exempt(guard):
    guard.tenant.create(PODS, pod())
    meta = {"name": "p", "annotations": {"slicewise.io/allocation": "{}"}}
    body = {"metadata": meta, "target": {"kind": "Node", "name": "one"}}

    guard.extender.create(f"{PODS}/p/binding", body)
    made = guard.admin.create(PODS, pod("q", annotations={"nano-gpu/assume": "true"}))

    bound = guard.admin.get(f"{PODS}/p")
    assert bound["metadata"]["annotations"]["slicewise.io/allocation"] == "{}"
    assert made["metadata"]["annotations"]["nano-gpu/assume"] == "true"


def test_controller_that_acts_for_a_tenant_is_held_to_the_same(guard):
    template = pod(labels={"app": "x"}, annotations={"ALIYUN_COM_GPU_MEM_IDX": "0"})
    template["metadata"].pop("name")
    body = {"metadata": {"name": "r"}, "spec": {"replicas": 1, "selector": {"app": "x"},
            "template": template}}  # fmt: skip
    path = "/api/v1/namespaces/team/replicationcontrollers"
    guard.tenant.create(path, body)

    def told():
        events = guard.admin.get("/api/v1/namespaces/team/events")["items"]
        return [each["message"] for each in events if each["reason"] == "FailedCreate"]

    try:
        wait_until(told, 30, lambda: "no FailedCreate")
        assert "written by Slicewise alone: ALIYUN_COM_GPU_MEM_IDX" in told()[0]
    finally:
        guard.admin.delete(f"{path}/r")


@pytest.mark.parametrize("limits", GPU_LIMITS)
def test_gpu_pods_get_our_scheduler_and_may_not_name_a_node(guard, limits):
    made = guard.tenant.create(PODS, pod(limits=limits))
    assert made["spec"]["schedulerName"] == "slicewise-scheduler"

    for annotations in ({}, {"kubernetes.io/config.mirror": "x"}):
        body = pod("q", limits=limits, annotations=annotations, nodeName="one")
        denied("may not set spec.nodeName", guard.tenant.create, PODS, body)


def test_other_pods_keep_scheduler_and_node(guard):
    plain = guard.tenant.create(PODS, pod(nodeName="one"))
    chosen = guard.tenant.create(
        PODS, pod("q", limits={"nvidia.com/gpu": "1"}, schedulerName="mine")
    )
    path = "/api/v1/namespaces/left-alone/pods"
    alone = guard.admin.create(path, pod(limits={"nvidia.com/gpu": "1"}))

    assert plain["spec"]["schedulerName"] == alone["spec"]["schedulerName"] == "default-scheduler"
    assert chosen["spec"]["schedulerName"] == "mine"
    guard.admin.delete(f"{path}/p", gracePeriodSeconds=0)


@pytest.mark.parametrize(("limits", "words"), UNSERVED)
def test_what_no_gpu_can_serve_is_refused_with_the_reason(guard, limits, words):
    assert denied(words, guard.tenant.create, PODS, pod(limits=limits)).code == 422


@pytest.mark.parametrize(("limits", "carried"), CARRIED)
def test_container_that_asks_for_memory_alone_gets_the_carrier(guard, limits, carried):
    body = pod(limits=limits)
    body["spec"]["initContainers"] = [
        {"name": "early", "image": "x", "resources": {"limits": limits}}
    ]
    made = guard.tenant.create(PODS, body)["spec"]

    for each in (*made["containers"], *made["initContainers"]):
        wanted = {**limits, **({"slicewise.io/carrier": "1"} if carried else {})}
        assert each["resources"] == {"limits": wanted, "requests": wanted}


def test_what_gpus_can_serve_is_taken(guard):
    for at, limits in enumerate(SERVED):
        guard.tenant.create(PODS, pod(f"p{at}", limits=limits))


def test_visible_devices_are_not_set_by_pods(guard):
    denied("NVIDIA_VISIBLE_DEVICES may be", guard.tenant.create, PODS, devices("all"))
    assert guard.tenant.create(PODS, devices("void"))


def test_agent_writes_its_own_node_and_the_pods_on_it_alone(guard):
    for name, node in (("here", "one"), ("there", "two")):
        guard.admin.create(PODS, pod(name, nodeName=node))
    flag = {"metadata": {"annotations": {"nvidia.com/gpu-assigned": "true"}}}
    inventory = {"metadata": {"annotations": {"slicewise.io/gpus": "[]"}}}

    guard.agent.patch(f"{PODS}/here", flag)
    guard.agent.patch("/api/v1/nodes/one/status", inventory)
    told = "agent of node one may not write what belongs to node two"
    denied(told, guard.agent.patch, f"{PODS}/there", flag)
    denied(told, guard.agent.patch, "/api/v1/nodes/two/status", inventory)
    denied("token names no node", guard.nodeless.patch, f"{PODS}/here", flag)
    denied(told, guard.agent.delete, f"{PODS}/there")
    assert guard.agent.delete(f"{PODS}/here", gracePeriodSeconds=0)


@pytest.mark.since(34)
def test_agent_writes_slices_of_its_own_node_and_driver_alone(guard):
    path = "/apis/resource.k8s.io/v1/resourceslices"

    def slices(name, node, driver="gpu.slicewise.io"):
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": []}
        return {"metadata": {"name": name}, "spec": spec}

    guard.agent.create(path, slices("mine", "one"))
    denied("may not write what belongs to node two", guard.agent.create, path, slices("b", "two"))
    denied("slices of the driver", guard.agent.create, path, slices("c", "one", "other.example"))
    guard.admin.create(path, slices("theirs", "two"))
    denied("belongs to node two", guard.agent.delete, f"{path}/theirs")
    guard.agent.delete(f"{path}/mine")
    guard.admin.delete(f"{path}/theirs")


@pytest.mark.parametrize("shared_guard", [POLICIES], indirect=True)
def test_policies_have_no_type_mistakes(guard):
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def checked():
        found = guard.admin.get(path)["items"]
        return len(found) == 5 and all("typeChecking" in each.get("status", {}) for each in found)

    wait_until(checked, 30, lambda: "policies were not type-checked")
    warnings = [
        (each["metadata"]["name"], each["status"]["typeChecking"].get("expressionWarnings"))
        for each in guard.admin.get(path)["items"]
    ]
    assert [each for each in warnings if each[1]] == []
