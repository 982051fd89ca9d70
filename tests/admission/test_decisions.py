"""The webhook's decisions, on the cases that the policies are held to on a real API server."""

import json
import re

import pytest

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
from slicewise.admission.claim_policy import CLAIMS
from slicewise.admission.decisions import AdmissionJudge
from slicewise.admission.policies import MUTATING, VALIDATING, PolicySettings, build_policies
from slicewise.admission.review import read_question

JUDGE = AdmissionJudge(PolicySettings())
AGENT = "system:serviceaccount:kube-system:slicewise-agent"


def question(new=None, old=None, *, resource="pods", operation="CREATE", **user):
    return read_question(
        json.dumps(
            {
                "apiVersion": "admission.k8s.io/v1",
                "kind": "AdmissionReview",
                "request": {
                    "uid": "u",
                    "operation": operation,
                    "resource": {"group": "", "version": "v1", "resource": resource},
                    "userInfo": user,
                    "object": new,
                    "oldObject": old,
                },
            }
        ).encode()
    )


def words(short, *objects, **facts):
    return JUDGE.judge(short, question(*objects, **facts)).words


def apply(patches, document):
    """The document with keys added, which is all that patches of ours do."""
    for patch in patches:
        assert patch["op"] == "add"
        *path, last = [part.replace("~1", "/") for part in patch["path"].split("/")[1:]]
        at = document
        for part in path:
            at = at[int(part)] if isinstance(at, list) else at[part]
        at[last] = patch["value"]
    return document


def test_every_policy_has_a_decision():
    # Clusters that have claims of ours evaluate policies by themselves.
    policies = set(build_policies(PolicySettings())) - {CLAIMS}

    assert set(JUDGE.names) == {*MUTATING, *VALIDATING} == policies


@pytest.mark.parametrize("mark", MARKS)
def test_new_annotation_that_is_a_mark_is_refused_by_its_name(mark):
    told = words("marks", pod(annotations={mark: "x"}))

    assert told == f"these annotations are written by Slicewise alone: {mark}"


@pytest.mark.parametrize("mark", LABELS)
def test_new_label_that_is_a_mark_is_refused_by_its_name(mark):
    told = words("marks", pod(labels={mark: "x"}))

    assert told == f"these labels are written by Slicewise alone: {mark}"


def test_wishes_are_open():
    assert words("marks", pod(annotations=dict.fromkeys(OPEN, "x"), labels={"app": "x"})) == ""


@pytest.mark.parametrize("change", FORGERIES, ids=str)
def test_marks_of_a_pod_may_not_be_added_changed_or_removed(change):
    old = pod(**KEPT)
    new = pod(**KEPT)
    for field, keys in change.items():
        merged = {**new["metadata"][field], **keys}
        new["metadata"][field] = {key: text for key, text in merged.items() if text is not None}

    told = words("marks", new, old, operation="UPDATE")

    ((field, (key,)),) = ((field, list(keys)) for field, keys in change.items())
    assert told == f"these {field} are written by Slicewise alone: {key}"
    assert words("marks", old, pod(**KEPT), operation="UPDATE") == ""


@pytest.mark.parametrize("limits", GPU_LIMITS, ids=str)
def test_gpu_pods_get_the_scheduler_and_may_not_name_a_node(limits):
    (patch,) = JUDGE.judge("scheduler-name", question(pod(limits=limits))).patches

    assert (patch["path"], patch["value"]) == ("/spec/schedulerName", "slicewise-scheduler")
    placed = pod(limits=limits, nodeName="one")
    assert "may not set spec.nodeName" in words("node-name", placed)
    assert not JUDGE.judge("scheduler-name", question(placed)).patches


def test_mirror_pods_of_kubelets_alone_name_their_node():
    mirror = pod(
        limits=GPU_LIMITS[0], annotations={"kubernetes.io/config.mirror": "x"}, nodeName="one"
    )

    assert words("node-name", mirror)
    assert words("node-name", mirror, groups=["system:nodes"]) == ""


@pytest.mark.parametrize(
    "body",
    [pod(nodeName="one"), pod(limits=GPU_LIMITS[0], schedulerName="mine"), pod()],
    ids=["no GPUs", "another scheduler", "nothing"],
)
def test_other_pods_stay_as_they_are(body):
    assert JUDGE.judge("scheduler-name", question(body)).patches == ()
    assert words("node-name", body) == ""


@pytest.mark.parametrize(("limits", "pattern"), UNSERVED)
def test_what_no_gpu_can_serve_is_refused_with_the_reason(limits, pattern):
    found = JUDGE.judge("requests", question(pod(limits=limits)))

    assert re.search(pattern, found.words)
    assert found.status == (422, "Invalid")


@pytest.mark.parametrize("limits", SERVED, ids=str)
def test_what_gpus_can_serve_is_taken(limits):
    assert words("requests", pod(limits=limits)) == ""


@pytest.mark.parametrize("requests", [True, False], ids=["with requests", "without"])
@pytest.mark.parametrize(("limits", "carried"), CARRIED)
def test_container_that_asks_for_memory_alone_gets_the_carrier(limits, carried, requests):
    body = pod()
    resources = {"limits": dict(limits), **({"requests": dict(limits)} if requests else {})}
    body["spec"]["containers"] = [{"name": "main", "resources": json.loads(json.dumps(resources))}]
    body["spec"]["initContainers"] = [{"name": "early", "resources": resources}]

    patches = JUDGE.judge("carrier", question(body)).patches

    more = {"slicewise.io/carrier": "1"} if carried else {}
    made = apply(patches, body)["spec"]
    for each in (*made["containers"], *made["initContainers"]):
        assert each["resources"]["limits"] == {**limits, **more}
        assert each["resources"].get("requests", more).items() >= more.items()


def test_visible_devices_are_not_set_by_pods():
    assert "NVIDIA_VISIBLE_DEVICES may be" in words("visible-devices", devices("all"))
    assert words("visible-devices", devices("void")) == ""


def agent(node):
    extra = {"authentication.kubernetes.io/node-name": [node]} if node else {}
    return {"username": AGENT, "extra": extra}


@pytest.mark.parametrize(
    ("resource", "body"),
    [("pods", pod(nodeName="one")), ("nodes", {"metadata": {"name": "one"}}),
     ("resourceslices", {"spec": {"nodeName": "one", "driver": "gpu.slicewise.io"}}),
     ("gpunodes", {"metadata": {"name": "one"}}),
     ("gpupods", {"metadata": {"name": "ml-a"}, "spec": {"node_name": "one"}}),
     ("leases", {"metadata": {"name": "one"}, "spec": {"holderIdentity": "one"}})],
)  # fmt: skip
def test_agent_writes_what_belongs_to_its_node_alone(resource, body):
    for operation, objects in (("UPDATE", (body, body)), ("DELETE", (None, body))):
        facts = {"resource": resource, "operation": operation}
        told = words("agents", *objects, **facts, **agent("two"))

        assert told == "the agent of node two may not write what belongs to node one"
        assert words("agents", *objects, **facts, **agent("one")) == ""
        assert "token names no node" in words("agents", *objects, **facts, **agent(""))
        assert words("agents", *objects, **facts, username="mallory") == ""


def test_agent_writes_slices_of_our_driver_alone():
    body = {"spec": {"nodeName": "one", "driver": "other.example"}}

    assert "driver gpu.slicewise.io" in words(
        "agents", body, resource="resourceslices", **agent("one")
    )
