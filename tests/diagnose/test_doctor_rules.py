import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
import trustme

import builders
from slicewise import __version__
from slicewise.cli.render.terminal import finish
from slicewise.cluster import Problem
from slicewise.diagnose.agents import AgentAbout, judge_agent
from slicewise.diagnose.findings import Finding, FindingSeverity
from slicewise.diagnose.findings_text import write_findings
from slicewise.diagnose.nodes import check_nodes
from slicewise.diagnose.scheduler import (
    check_config,
    check_policy_flags,
    check_scheduler_names,
    read_config,
    read_seconds,
)
from slicewise.diagnose.services import (
    check_apiservice,
    check_certificates,
    check_ledger,
    check_quota,
)
from slicewise.dialects import CORDONED, DEFAULT, GPUS, write_gpus
from slicewise.dialects.scheduler_config import ALL, build_config
from slicewise.dialects.scheduler_documents import GROUP, KIND
from slicewise.model import NodeDetails, NodeNotice

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def machine(annotations=None, offers=(), labels=None, runtime="containerd://2.0.1"):
    amounts = {name: 2 if name == "nvidia.com/gpu" else 200 for name in offers}
    notice = NodeNotice("n0", labels or {}, annotations or {}, amounts, amounts)
    return NodeDetails(notice, labels or {}, runtime=runtime, kubelet="v1.33.1")


OWN, ELASTIC = ("slicewise.io/gpu",), ("elasticgpu.io/gpu-core",)


def own(*gpus, **annotations):
    return {GPUS: write_gpus(builders.node("n0", gpus or 2)), **annotations}


def told(findings, *levels):
    return [each.what for each in findings if each.severity in (levels or tuple(FindingSeverity))]


@pytest.mark.parametrize(
    ("node", "level", "words"),
    [
        pytest.param(machine(), FindingSeverity.PROBLEM, "none of 1 node shows a GPU", id="no-gpu"),
        pytest.param(
            machine({GPUS: "[]"}), FindingSeverity.PROBLEM, "GPUs cannot be read", id="bad-gpus"
        ),
        pytest.param(machine(own()), FindingSeverity.PROBLEM, "no resource is", id="no-plugin"),
        pytest.param(
            machine(labels={"gpushare": "true"}),
            FindingSeverity.PROBLEM,
            "label gpushare=true is set, and aliyun.com/gpu-mem is 0",
            id="label-without-plugin",
        ),
        pytest.param(
            machine(own(builders.gpu(1, healthy=False)), OWN),
            FindingSeverity.WARNING,
            "gpu 1 is unhealthy",
            id="unhealthy",
        ),
        pytest.param(
            machine(own(**{CORDONED: "GPU-n0-1,GPU-gone"}), OWN),
            FindingSeverity.NOTE,
            "cordoned GPU GPU-gone is not there",
            id="cordoned-and-gone",
        ),
        pytest.param(
            machine(None, ELASTIC, runtime="docker://20.10.7"),
            FindingSeverity.WARNING,
            "docker 20.10.7 knows no CDI devices",
            id="docker",
        ),
        pytest.param(
            machine(None, ELASTIC, runtime="containerd://1.6.8"),
            FindingSeverity.WARNING,
            "containerd 1.6.8 knows no CDI devices",
            id="old-containerd",
        ),
        pytest.param(
            machine(None, ELASTIC, runtime="containerd://1.7.2"),
            FindingSeverity.NOTE,
            "has CDI off unless",
            id="containerd-that-must-be-told",
        ),
        pytest.param(
            machine(None, ("nvidia.com/gpu", *ELASTIC)),
            FindingSeverity.WARNING,
            "two device plugins give out one GPU",
            id="two-plugins",
        ),
    ],
)
def test_node_that_needs_something_is_told_with_its_fix(node, level, words):
    findings, _ = check_nodes([node])

    found = [each for each in findings if words in each.what]
    assert [each.severity for each in found] == [level], told(findings)
    assert all(each.fix for each in found)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(AgentAbout(__version__, "cdi"), [], id="well"),
        pytest.param(AgentAbout(__version__, "match"), ["by size and age"], id="match"),
        pytest.param(AgentAbout(__version__, "cdi", False), ["is not ready"], id="not-ready"),
        pytest.param(AgentAbout("0.0.0", "cdi"), ["agent is 0.0.0"], id="version"),
        pytest.param(None, ["is silent on port 5678"], id="silent"),
    ],
)
def test_agents_are_judged_by_what_they_say(answer, words):
    findings = list(judge_agent(machine(own(), OWN), answer, __version__, 5678))

    assert len(findings) == len(words)
    assert all(word in each.what for word, each in zip(words, findings, strict=True))


def config(**changes):
    made = build_config("slicewise", "http://x")
    made["extenders"][0] |= changes
    return made


@pytest.mark.parametrize("dialect", ["slicewise", "gpushare", "elastic", ALL])
def test_our_own_configurations_are_in_order(dialect):
    resources = frozenset(
        DEFAULT.extender_configs.get(dialect, DEFAULT.extender_configs["slicewise"]).resources
    )

    findings = check_config(build_config(dialect, "http://x"), resources, 5000, "f")

    assert told(findings, FindingSeverity.PROBLEM, FindingSeverity.WARNING) == [], findings


@pytest.mark.parametrize(
    ("document", "level", "words"),
    [
        pytest.param({"extenders": []}, FindingSeverity.PROBLEM, "no extender manages", id="none"),
        pytest.param(
            config(httpTimeout=None), FindingSeverity.WARNING, "httpTimeout is 5 s", id="timeout"
        ),
        pytest.param(
            config(ignorable=True),
            FindingSeverity.PROBLEM,
            "GPUs that are not counted",
            id="ignorable",
        ),
        pytest.param(
            config(managedResources=[]), FindingSeverity.WARNING, "every pod", id="unmanaged"
        ),
        pytest.param(
            config(nodeCacheCapable=False), FindingSeverity.WARNING, "whole Node", id="whole-nodes"
        ),
        pytest.param(
            config(prioritizeVerb="p"), FindingSeverity.PROBLEM, "without weight", id="weight"
        ),
        pytest.param(
            {**config(), "percentageOfNodesToScore": 0},
            FindingSeverity.WARNING,
            "of 5000 nodes only some are asked",
            id="sample",
        ),
        pytest.param(
            {**config(), "extenders": config()["extenders"] * 2},
            FindingSeverity.PROBLEM,
            "2 extenders have a bindVerb",
            id="two-binds",
        ),
        pytest.param(
            config(managedResources=[{"name": "slicewise.io/gpu", "ignoredByScheduler": True}]),
            FindingSeverity.NOTE,
            "nothing is preempted",
            id="ignored",
        ),
    ],
)
def test_configuration_that_needs_something_is_told_with_its_fix(document, level, words):
    findings = check_config(document, frozenset({"slicewise.io/gpu"}), 5000, "f")

    found = [each for each in findings if words in each.what]
    assert level in {each.severity for each in found}, told(findings)
    assert all(each.fix for each in found)


def test_resource_that_nobody_manages_is_told():
    findings = check_config(config(), frozenset({"aliyun.com/gpu-mem"}), 3, "f")

    assert told(findings) == ["f: nodes offer aliyun.com/gpu-mem, which no extender manages"]


def waiting(name, scheduler, resource):
    container = {"name": "main", "resources": {"limits": {resource: "1"}}}
    spec = {"schedulerName": scheduler, "containers": [{"name": "side"}, container]}
    return {"metadata": {"namespace": "team", "name": name}, "spec": spec}


def test_pods_of_a_scheduler_that_asks_no_extender_are_told():
    profiles = [{"schedulerName": "slicewise-scheduler"}]
    pods = [
        waiting("lost", "default-scheduler", "slicewise.io/gpu"),
        waiting("plain", "default-scheduler", "example.com/nic"),
        waiting("well", "slicewise-scheduler", "slicewise.io/gpu"),
    ]

    findings = check_scheduler_names([config() | {"profiles": profiles}], pods)

    assert [(each.subject, each.what) for each in findings] == [
        ("pod/team/lost", "waits for scheduler default-scheduler, which asks no extender")
    ]
    assert "slicewise-scheduler" in findings[0].fix
    assert check_scheduler_names([config()], pods[:2]) == []
    assert check_scheduler_names([{"extenders": []}], pods) == []


def test_old_policy_is_read_as_a_configuration():
    policy = {
        "kind": "Policy",
        "extenders": [
            {
                "urlPrefix": "http://x/gpushare-scheduler",
                "filterVerb": "filter",
                "bindVerb": "bind",
                "nodeCacheCapable": True,
                "httpTimeout": 30_000_000_000,
                "managedResources": [{"name": "aliyun.com/gpu-mem"}],
            }
        ],
    }

    found = read_config(json.dumps(policy))
    findings = check_config(found.config, frozenset(), 10, "f")

    assert told(findings) == ["f: asks http://x/gpushare-scheduler"]


@pytest.mark.parametrize(
    ("document", "minor", "words"),
    [
        ({"kind": "Policy"}, 22, None),
        (
            {"kind": "Policy"},
            23,
            "a Policy, which schedulers read up to 1.22; this",
        ),
        ({"kind": "Policy"}, None, None),
        ({"apiVersion": f"{GROUP}/v1beta2", "kind": KIND}, 27, None),
        ({"apiVersion": f"{GROUP}/v1beta2", "kind": KIND}, 28, "read up to 1.27; this cluster"),
        ({"apiVersion": f"{GROUP}/v1alpha2"}, 36, "v1alpha2, which schedulers read up to 1.18"),
        ({"apiVersion": f"{GROUP}/v1", "kind": KIND}, 36, None),
        ({"apiVersion": "v1", "kind": KIND}, 36, "apiVersion='v1': expected kubescheduler"),
    ],
)
def test_form_that_the_clusters_scheduler_does_not_read_is_a_problem(document, minor, words):
    findings = read_config(json.dumps(document)).check_form(minor, "f")

    assert [words in each for each in told(findings)] == ([] if words is None else [True])


def test_flags_of_policies_are_a_problem_where_schedulers_do_not_know_them():
    flags = [("pod s", {"--policy-config-file": "/p.json", "--use-legacy-policy-config": "true"})]

    assert told(check_policy_flags(flags, 22)) == []
    (words,) = told(check_policy_flags(flags, 36))
    assert words.startswith("pod s is started with --policy-config-file, --use-legacy-policy-conf")
    assert words.endswith("up to 1.22, this cluster is 1.36")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("30s", 30), ("1m30s", 90), ("500ms", 0.5), (None, 5), (5_000_000_000, 5), ("?", 5)],
)
def test_timeouts_are_read_as_schedulers_read_them(value, seconds):
    assert read_seconds(value) == pytest.approx(seconds)


def certificate(days):
    authority = trustme.CA()
    made = authority.issue_cert(
        "x.svc", not_before=NOW - timedelta(days=30), not_after=NOW + timedelta(days=days)
    )
    return made.cert_chain_pems[0].bytes()


@pytest.mark.parametrize(
    ("days", "level", "words"),
    [
        (90, FindingSeverity.OK, "is valid until 2030-04-01"),
        (3, FindingSeverity.WARNING, "runs out on 2030-01-04"),
        (-1, FindingSeverity.PROBLEM, "ran out on 2029-12-31"),
    ],
)
def test_certificates_are_judged_by_their_end(days, level, words):
    [found] = check_certificates("it", certificate(days), NOW, "renew it")

    assert (found.severity, found.what) == (level, f"it {words}")


def test_what_is_no_certificate_is_a_problem():
    assert [each.severity for each in check_certificates("it", b"x", NOW, "f")] == [
        FindingSeverity.PROBLEM
    ]


def test_missing_metrics_api_is_told_with_what_is_lost():
    (finding,) = check_apiservice("v1", None, NOW, "no load is measured")

    assert finding.what == "APIService v1 is not there: no load is measured"


def test_apiservice_is_judged_by_its_condition_and_authority():
    bundle = base64.b64encode(certificate(-1)).decode()
    condition = {"type": "Available", "status": "False", "message": "no endpoints"}
    body = {"spec": {"caBundle": bundle}, "status": {"conditions": [condition]}}

    findings = check_apiservice("v1", body, NOW)

    assert told(findings, FindingSeverity.PROBLEM) == [
        "APIService v1 is not available: no endpoints",
        "authority of APIService v1 ran out on 2029-12-31",
    ]


@pytest.mark.parametrize(
    ("data", "level"),
    [
        (None, FindingSeverity.OK),
        ({}, FindingSeverity.WARNING),
        ({"gpu_quota": "["}, FindingSeverity.PROBLEM),
        ({"gpu_quota": '{"a": {"quota": {"A10": 1}}}'}, FindingSeverity.OK),
    ],
)
def test_quota_is_read(data, level):
    assert [each.severity for each in check_quota("a/b", data)] == [level]


@pytest.mark.parametrize(
    ("trouble", "fix"),
    [
        ("ForgedRecord", "its owner edited it"),
        ("OverQuota", "raise the namespace's quota"),
        ("SupersededRecord", "another pod has its GPU"),
        ("OverCommitted", "kubectl slicewise why"),
    ],
)
def test_every_trouble_of_a_pod_comes_with_what_to_do(trouble, fix):
    (finding,) = check_ledger([Problem("ml/p", trouble, "its detail")])

    assert finding.what == f"{trouble}: its detail"
    assert fix in finding.fix


def test_findings_that_differ_in_their_subject_alone_are_told_together():
    findings = [Finding(FindingSeverity.NOTE, "t", "is so", "do it", f"n{at}") for at in range(6)]

    text = [
        finish(line).replace("\x1b[90m", "").replace("\x1b[0m", "")
        for line in write_findings(findings)
    ]

    assert text[1] == "  note     n0, n1, n2, n3 and 2 more: is so"
    assert text[2:] == ["           fix: do it"]
