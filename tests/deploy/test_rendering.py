"""What the chart makes of its values, for old and new clusters, without any cluster."""

from pathlib import Path

import pytest
import yaml

from slicewise.dialects import DEFAULT
from slicewise.dialects.scheduler_config import ALL, build_config

CHART = Path(__file__).resolve().parents[2] / "deploy" / "chart" / "slicewise"
SETS = sorted(path.name for path in (CHART / "ci").glob("*-values.yaml"))
SELECTED = {"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"}


def find(objects, kind, name):
    return next(
        each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name
    )


def templates(objects):
    return [each for each in objects if each["kind"] in ("Deployment", "DaemonSet")]


def containers(workload):
    return workload["spec"]["template"]["spec"]["containers"]


@pytest.mark.parametrize("kubernetes", ["1.25.0", "1.30.0", "1.36.0"])
@pytest.mark.parametrize("values", ["", *SETS])
def test_every_set_of_values_renders_for_every_version(render, values, kubernetes):
    flags = ("--values", str(CHART / "ci" / values)) if values else ()

    objects = render(*flags, kubernetes=kubernetes)

    names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
             for each in objects]  # fmt: skip
    assert len(names) == len(set(names))
    assert all(len(each["metadata"]["labels"]) >= 7 for each in objects)


def test_versions_with_suffixes_are_served_and_named_without_them(render):
    objects = render(kubernetes="v1.29.11-eks-55b65f5")

    scheduler, _ = containers(find(objects, "Deployment", "slicewise-scheduler"))
    assert scheduler["image"].endswith("kube-scheduler:v1.29.11")


def test_selectors_name_only_what_never_changes(render):
    for workload in templates(render()):
        assert workload["spec"]["selector"]["matchLabels"].keys() == SELECTED


def test_all_but_the_agent_are_restricted(render):
    for workload in templates(render()):
        pod = workload["spec"]["template"]["spec"]
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"]
            more = {"add": ["DAC_OVERRIDE"]} if workload["kind"] == "DaemonSet" else {}
            assert context["capabilities"] == {"drop": ["ALL"], **more}
            assert not context["allowPrivilegeEscalation"]
        if workload["kind"] != "DaemonSet":
            assert pod["securityContext"]["runAsNonRoot"]
            assert pod["securityContext"]["runAsUser"] == 65532
            assert not any("hostPath" in volume for volume in pod.get("volumes", ()))


def test_extender_beside_its_scheduler_is_reachable_by_nobody_else(render):
    objects = render()

    _, extender = containers(find(objects, "Deployment", "slicewise-scheduler"))

    assert "--address=127.0.0.1:3456" in extender["args"]
    assert [port["name"] for port in extender["ports"]] == ["health"]
    services = [each["metadata"]["name"] for each in objects if each["kind"] == "Service"]
    assert not [name for name in services if "extender" in name]


def test_scheduler_manages_exactly_the_resources_of_the_code(render):
    objects = render()
    config = find(objects, "ConfigMap", "slicewise-scheduler")["data"]["config.yaml"]

    (extender,) = yaml.safe_load(config)["extenders"]

    assert [extender] == build_config(ALL, "http://127.0.0.1:3456")["extenders"]
    assert {each["name"] for each in extender["managedResources"]} == set(DEFAULT.resources)


def test_image_can_come_from_a_mirror_and_by_digest(render):
    objects = render("--values", str(CHART / "ci" / "air-gapped-values.yaml"))
    agent = find(objects, "DaemonSet", "slicewise-agent")

    (container,) = containers(agent)

    assert container["image"] == f"mirror.example.org/gpu/slicewise@sha256:{'0' * 64}"
    pull = agent["spec"]["template"]["spec"]["imagePullSecrets"]
    assert pull == [{"name": "mirror"}]


def test_agent_is_privileged_only_where_it_opens_devices_itself(render):
    def context(*flags):
        return containers(find(render(*flags), "DaemonSet", "slicewise-agent"))[0][
            "securityContext"
        ]

    assert "privileged" not in context()
    assert context("--set", "agent.driver.mode=hostPath")["privileged"]


def test_changed_configuration_restarts_the_pods_that_read_it(render):
    def checksum(*flags):
        workload = find(render(*flags), "Deployment", "slicewise-scheduler")
        return workload["spec"]["template"]["metadata"]["annotations"]["checksum/config"]

    assert checksum() != checksum("--set", "scheduler.name=gpus")


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("agents.enabled=true", "agents"),
        ("scheduler.mode=second", "scheduler/mode|scheduler.mode"),
        ("scheduler.name=default-scheduler", "name this one otherwise"),
        ("scheduler.mode=existing", "needs a certificate for the extender"),
        ("scheduler.mode=existing,certificates.mode=cert-manager", "clientCaSecret"),
        ("compatibility.gpushare.enabled=true", "over plain HTTP"),
        ("dashboard.exposure=tls", "dashboard.tlsSecret"),
        ("dashboard.ingress.enabled=true", "needs a Service"),
        ("certificates.mode=secret", "certificates.secret.metricsApi"),
        ("trust.configMap=slicewise-trust", "configMap"),
    ],
)
def test_impossible_values_are_refused_with_a_sentence(render, flag, words):
    with pytest.raises(ValueError, match=words):
        render("--set", flag)


def test_plain_manifests_are_what_the_chart_renders(supply, helm):
    import render_chart  # noqa: PLC0415

    assert render_chart.EXTENDER.read_text() == render_chart.write_extender()
    assert render_chart.MANIFESTS.read_text() == render_chart.write_manifests(helm)
    for name in render_chart.PARTS:
        assert render_chart.find_part(name).read_text() == render_chart.write_part(helm, name)


def kinds_of_admission(objects):
    kinds = {}
    for each in objects:
        if each["kind"].endswith(("AdmissionPolicy", "WebhookConfiguration")):
            kinds.setdefault(each["kind"], set()).add(each["metadata"]["name"])
    return kinds


CHANGES = {"slicewise-scheduler-name", "slicewise-carrier"}
GUARDS = {"slicewise-marks", "slicewise-node-name", "slicewise-requests"}


@pytest.mark.parametrize(
    ("kubernetes", "kinds"),
    [
        ("1.36.0", {"MutatingAdmissionPolicy": CHANGES,
                    "ValidatingAdmissionPolicy": {*GUARDS, "slicewise-agents"}}),
        ("1.30.0", {"MutatingWebhookConfiguration": CHANGES,
                    "ValidatingAdmissionPolicy": {*GUARDS, "slicewise-agents"}}),
        ("1.25.0", {"MutatingWebhookConfiguration": CHANGES,
                    "ValidatingWebhookConfiguration": GUARDS}),
    ],
)  # fmt: skip
def test_clusters_too_old_for_policies_ask_the_webhook(render, kubernetes, kinds):
    objects = render(kubernetes=kubernetes)

    assert kinds_of_admission(objects) == kinds
    deployed = {each["metadata"]["name"] for each in templates(objects)}
    assert ("slicewise-webhook" in deployed) == any("Webhook" in kind for kind in kinds)


def test_claims_that_the_engine_does_not_do_are_changed_where_claims_are_followed(render):
    found = kinds_of_admission(render("--set", "extender.dra=true"))
    asked = kinds_of_admission(render("--set", "extender.dra=true", *WEBHOOK))

    assert found["MutatingAdmissionPolicy"] == {*CHANGES, "slicewise-claims"}
    assert asked["MutatingWebhookConfiguration"] == CHANGES


WEBHOOK = ("--set", "admission.mutation=webhook,admission.validation=webhook")


def test_webhook_is_asked_what_the_policy_of_its_name_would_be(render):
    asked = render(*WEBHOOK)
    policies = [each for each in render() if each["kind"].endswith("AdmissionPolicy")]

    assert len(policies) == 6
    for policy in policies:
        kind = policy["kind"].replace("AdmissionPolicy", "WebhookConfiguration")
        (webhook,) = find(asked, kind, policy["metadata"]["name"])["webhooks"]
        match = policy["spec"]["matchConstraints"]
        assert webhook["rules"] == match["resourceRules"]
        assert webhook.get("matchConditions") == policy["spec"].get("matchConditions")
        assert webhook["failurePolicy"] == "Ignore"
        (own, *_) = webhook["namespaceSelector"]["matchExpressions"]
        assert own["values"] == ["kube-system", "gpus"]
        if "namespaceSelector" in match:
            assert webhook["namespaceSelector"] == match["namespaceSelector"]
        short = policy["metadata"]["name"].removeprefix("slicewise-")
        assert webhook["clientConfig"]["service"]["path"] == f"/{short}"


def test_only_what_guards_fails_closed_when_that_is_wanted(render):
    objects = render(*WEBHOOK, "--set", "webhook.failurePolicy=Fail")

    closed = {
        each["metadata"]["name"]
        for each in objects
        if each["kind"].endswith("WebhookConfiguration")
        and each["webhooks"][0]["failurePolicy"] == "Fail"
    }
    assert closed == {"slicewise-marks", "slicewise-node-name", "slicewise-agents"}


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("admission.mutation=policy", "need Kubernetes 1.36"),
        ("admission.validation=policy", "need Kubernetes 1.30"),
        (
            "certificates.mode=secret,certificates.secret.metricsApi=x",
            "certificates.secret.webhook",
        ),
    ],
)
def test_old_cluster_is_refused_what_it_cannot_do(render, flag, words):
    with pytest.raises(ValueError, match=words):
        render("--set", flag, kubernetes="1.29.0")


def test_evictions_and_fairness_follow_their_values(render):
    def look(*flags):
        objects = render(*flags)
        rules = find(objects, "ClusterRole", "slicewise-extender")["rules"]
        rights = {each for rule in rules for each in rule["resources"]}
        _, extender = containers(find(objects, "Deployment", "slicewise-scheduler"))
        ours = ("--no-evict", "--fair-after=90", "--fair-for=600")
        return "pods/eviction" in rights, [each for each in extender["args"] if each in ours]

    assert look() == (True, [])
    assert look("--set", "preemption.evict=false") == (False, ["--no-evict"])
    assert look("--set", "fairness.afterSeconds=90") == (
        True,
        ["--fair-after=90", "--fair-for=600"],
    )


def test_custom_resources_are_off_by_default(render):
    objects = render("--set", "compatibility.nvidiaGpuScheduler.customResources=true")

    definitions = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
    assert [each["spec"]["names"]["kind"] for each in definitions] == ["GpuNode", "GpuPod"]
    (agent,) = containers(find(objects, "DaemonSet", "slicewise-agent"))
    assert "--custom-resources=gpus" in agent["args"]
    (server,) = containers(find(objects, "Deployment", "slicewise-metrics-api"))
    assert "--custom-resources" in server["args"]
    assert not [each for each in render() if each["kind"].startswith("Custom")]


def test_labels_of_the_quota_reach_everybody_who_reads_it(render):
    flags = ("--set", "quota.modelLabel=x.org/model,quota.poolLabel=x.org/pool")

    told = [
        container["args"]
        for workload in templates(render(*flags))
        for container in containers(workload)
        if any(f"{each}" in container["args"][0] for each in ("extender", "dashboard", "metrics"))
    ]

    assert len(told) == 3
    assert all({"--model-label=x.org/model", "--pool-label=x.org/pool"} <= set(a) for a in told)


@pytest.mark.parametrize(
    ("path", "socket"), [("/etc/gpu-manager", "/etc/gpu-manager/gpu-manager.sock"), ("", "")]
)
def test_display_socket_is_where_gpu_managers_users_look_or_nowhere(render, path, socket):
    (agent,) = containers(
        find(render("--set", f"agent.gpuManagerPath={path}"), "DaemonSet", "slicewise-agent")
    )

    sockets = [each for each in agent["args"] if each.startswith("--display-socket=")]

    assert sockets == [f"--display-socket={socket}"]
