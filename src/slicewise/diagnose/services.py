"""What doctor says of certificates, metrics API, quota, the ledger and a person's rights."""

import base64
import binascii
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography import x509

from slicewise.cluster import QUOTA_KEY, Problem, ProblemKind, read_quota
from slicewise.diagnose.findings import Finding, note, ok, problem, warning
from slicewise.dialects import DEFAULT
from slicewise.model import Pod, SlicewiseError, count

CERTIFICATES: Final = "certificates"
METRICS: Final = "metrics API"
QUOTA: Final = "quota"
RIGHTS: Final = "your rights"
LEDGER: Final = "pods and GPUs"
_REMAKE: Final = (
    "kubectl slicewise why POD says what it holds; delete and recreate it if it is wrong"
)
_EDITED: Final = "its owner edited it, or it was bound past Slicewise: delete and recreate it"
_FIXES: Final = {
    ProblemKind.UNSIGNED_RECORD.value: _EDITED,
    ProblemKind.FORGED_RECORD.value: _EDITED,
    ProblemKind.REPLAYED_RECORD.value: _EDITED,
    ProblemKind.SUPERSEDED_RECORD.value: "delete and recreate it: another pod has its GPU",
    ProblemKind.OVER_QUOTA.value: "raise the namespace's quota, or delete pods that it has",
}
_UNRECORDED: Final = (
    "no record says which GPUs it has: it counts on all GPUs of its node, or waits for some there"
)
_BIND: Final = "let pods be bound through Slicewise, or keep a node for those whose kubelet chooses"
_SOON: Final = timedelta(days=14)


def check_certificates(name: str, content: bytes, now: datetime, fix: str) -> list[Finding]:
    """How long the certificates in a PEM file are good for; what renews itself is renewed early."""
    try:
        found = x509.load_pem_x509_certificates(content)
    except ValueError as error:
        return [problem(CERTIFICATES, f"{name} cannot be read: {error}", fix)]
    ends = min(each.not_valid_after_utc for each in found)
    starts = max(each.not_valid_before_utc for each in found)
    day = f"{ends:%Y-%m-%d}"
    if ends <= now:
        return [problem(CERTIFICATES, f"{name} ran out on {day}", fix)]
    if starts > now:
        return [problem(CERTIFICATES, f"{name} is not valid before {starts:%Y-%m-%d}", fix)]
    if ends - now < _SOON:
        return [warning(CERTIFICATES, f"{name} runs out on {day}", fix)]
    return [ok(CERTIFICATES, f"{name} is valid until {day}")]


def check_apiservice(
    name: str, body: Mapping[str, Any] | None, now: datetime, loss: str = ""
) -> list[Finding]:
    """Whether the aggregated API is registered, answers, and shows a certificate that holds.

    `loss` says what there is not without it.
    """
    if body is None:
        what = f"APIService {name} is not there{f': {loss}' if loss else ''}"
        return [note(METRICS, what, "deploy slicewise metrics-api, if you want it")]
    conditions = {
        each.get("type"): each for each in (body.get("status") or {}).get("conditions") or ()
    }
    available = conditions.get("Available") or {}
    findings = []
    if available.get("status") == "True":
        findings.append(ok(METRICS, f"APIService {name} is available"))
    else:
        why = available.get("message") or available.get("reason") or "no reason is given"
        fix = "look at the pods and the Service behind it"
        findings.append(problem(METRICS, f"APIService {name} is not available: {why}", fix))
    bundle = (body.get("spec") or {}).get("caBundle")
    if bundle:
        renew = "the server renews it by itself; look at its log"
        try:
            content = base64.b64decode(bundle, validate=True)
        except (binascii.Error, ValueError):
            content = b""
        findings += check_certificates(f"authority of APIService {name}", content, now, renew)
    return findings


def check_quota(where: str, data: Mapping[str, str] | None) -> list[Finding]:
    if data is None:
        return [ok(QUOTA, f"no ConfigMap {where}: every namespace is unlimited")]
    text = data.get(QUOTA_KEY)
    if text is None:
        fix = f"put the quota under the key {QUOTA_KEY}"
        return [warning(QUOTA, f"ConfigMap {where} has no key {QUOTA_KEY}: it says nothing", fix)]
    try:
        quota = read_quota(text)
    except SlicewiseError as error:
        fix = "correct it; until then the last good quota counts; after a restart no pod gets a GPU"
        return [problem(QUOTA, f"ConfigMap {where}: {error}", fix)]
    spaces = count(len(quota.namespaces), "namespace")
    return [ok(QUOTA, f"ConfigMap {where} limits {spaces}")]


def check_rights(answers: Iterable[tuple[str, str, bool | None]]) -> list[Finding]:
    """What a person may not do, by what it is good for; None is a question without an answer."""
    denied = [(right, use) for right, use, allowed in answers if allowed is False]
    if not denied:
        return [ok(RIGHTS, "everything that these commands need is allowed")]
    return [
        warning(RIGHTS, f"you may not {right}, which {use} needs", "ask for a role that allows it")
        for right, use in denied
    ]


def check_ledger(problems: Iterable[Problem]) -> list[Finding]:
    """What the ledger cannot account for; nodes that cannot be read have findings of their own."""
    found = [each for each in problems if not each.subject.startswith("node/")]
    if not found:
        return [ok(LEDGER, "every pod's GPUs are known, and no GPU is allocated twice")]
    return [_find_pod(each) for each in found]


def check_names(pods: Iterable[Pod]) -> list[Finding]:
    """Pods that wait for a resource which nobody offers, because its name is misspelt."""
    return [
        problem(
            LEDGER,
            f"waits for {each.resource}, which nobody offers",
            f"write {' or '.join(each.meant)} into its manifest",
            f"pod/{pod.namespace}/{pod.name}",
        )
        for pod in pods
        for each in DEFAULT.spelling.find_in_pod(pod)
    ]


def _find_pod(each: Problem) -> Finding:
    if each.trouble == ProblemKind.MISSING_ALLOCATION.value:
        return note(LEDGER, _UNRECORDED, _BIND, each.subject)
    fix = _FIXES.get(each.trouble, _REMAKE)
    return warning(LEDGER, f"{each.trouble}: {each.detail}", fix, each.subject)
