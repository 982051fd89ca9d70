"""What the API server is answered: patches, denials, warnings, and failures that let it decide."""

import asyncio
import base64
import json

import pytest

from admission.cases import pod
from slicewise.admission.decisions import AdmissionJudge
from slicewise.admission.policies import PolicySettings
from slicewise.admission.webhook import AdmissionWebhook
from slicewise.httpd import HttpRequest
from slicewise.kube.errors import LostError

JUDGE = AdmissionJudge(PolicySettings())
FORGED = pod(annotations={"slicewise.io/allocation": "{}"})


class Granted:
    """Rights of these users alone; without any list the API server cannot be asked."""

    def __init__(self, *names, lost=False):
        self.names, self.lost, self.asked = names, lost, []

    async def permits(self, user, wanted):
        self.asked.append(wanted.describe())
        if self.lost:
            raise LostError("connection refused")
        return user.name in self.names


def ask(path, body, *, rights=None, actions=("Deny",)):
    async def gone():
        return None

    webhook = AdmissionWebhook(JUDGE, rights or Granted(), actions)
    request = HttpRequest("POST", path, {}, {}, json.dumps(body).encode(), gone)
    return asyncio.run(webhook.router.handle(request))


def review(new, username="mallory"):
    request = {
        "uid": "u",
        "operation": "CREATE",
        "resource": {"resource": "pods"},
        "userInfo": {"username": username},
        "object": new,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def respond(path, body, **facts):
    answer = ask(path, body, **facts)
    assert answer.status == 200
    document = json.loads(answer.body)
    assert (document["kind"], document["response"]["uid"]) == ("AdmissionReview", "u")
    return document["response"]


def test_forged_record_is_denied_with_code_reason_and_words():
    found = respond("/marks", review(FORGED))

    assert not found["allowed"]
    assert (found["status"]["code"], found["status"]["reason"]) == (403, "Forbidden")
    assert found["status"]["message"].endswith(
        "written by Slicewise alone: slicewise.io/allocation"
    )


def test_whoever_may_write_marks_is_exempt_and_asked_for_only_when_it_matters():
    rights = Granted("extender")

    assert respond("/marks", review(FORGED, "extender"), rights=rights)["allowed"]
    assert respond("/marks", review(pod()), rights=rights)["allowed"]
    assert rights.asked == [{"verb": "write", "resource": "marks", "group": "slicewise.io"}]


def test_nobody_is_exempt_from_what_no_gpu_can_serve():
    body = review(pod(limits={"nvidia.com/gpu": "65"}), "extender")

    found = respond("/requests", body, rights=Granted("extender"))

    assert (found["allowed"], found["status"]["code"]) == (False, 422)


def test_warnings_and_audit_annotations_take_the_place_of_a_denial():
    found = respond("/marks", review(FORGED), actions=("Warn", "Audit"))

    assert found["allowed"]
    assert "slicewise.io/allocation" in found["warnings"][0]
    assert found["auditAnnotations"]["violation"] == found["warnings"][0]


def test_defaults_come_as_a_json_patch():
    found = respond("/scheduler-name", review(pod(limits={"nvidia.com/gpu": "1"})))

    assert found["patchType"] == "JSONPatch"
    (patch,) = json.loads(base64.b64decode(found["patch"]))
    assert patch == {"op": "add", "path": "/spec/schedulerName", "value": "slicewise-scheduler"}


def test_request_is_not_judged_while_rights_cannot_be_asked_for():
    assert ask("/marks", review(FORGED), rights=Granted(lost=True)).status == 503


@pytest.mark.parametrize(
    "body", [{}, {"apiVersion": "admission.k8s.io/v1beta1", "request": {}}, [], {"request": 1}]
)
def test_what_is_no_review_is_refused(body):
    assert ask("/marks", body).status == 400


def test_unknown_policy_has_no_path():
    assert ask("/everything", review(pod())).status == 404
