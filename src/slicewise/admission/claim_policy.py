"""The policy for claims that our engine does not do: their requests tolerate its taint.

A scheduler then allocates them, and the extender grants or refuses that. The spec of a claim cannot
be changed later, so it is done when a claim or a template is created.
"""

from typing import Any, Final

from slicewise.model.claim import ENGINE_TAINT

CLAIMS: Final = "claims"
"""The short name of the policy."""
RESOURCES: Final = ("resourceclaims", "resourceclaimtemplates")
_MOST_ALTERNATIVES: Final = 8
_TOLERATION: Final = f"{{'key': '{ENGINE_TAINT}', 'operator': 'Exists', 'effect': 'NoSchedule'}}"
_MODE: Final = "r.exactly.?allocationMode.orValue('ExactCount') != 'ExactCount'"
_AMOUNTS: Final = "r.exactly.?capacity.?requests.orValue({})"
_PART: Final = f"('cores' in {_AMOUNTS} && !('memory' in {_AMOUNTS}))"


def build_claim_policy(name: str) -> dict[str, Any]:
    """The policy; it is for clusters from 1.36 on, and so are claims of ours."""
    found = "request.resource.resource == 'resourceclaims'"
    rule = {
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": list(RESOURCES),
    }
    devices = f"({found} ? object.spec.devices : object.spec.spec.devices)"
    requests = f"{devices}.?requests.orValue([])"
    strange = (
        f"{devices}.?config.orValue([]).size() > 0 || {requests}.exists(r, "
        "r.?firstAvailable.orValue([]).size() > 0 || (has(r.exactly) && "
        f"({_MODE} || r.exactly.?adminAccess.orValue(false) || {_PART})))"
    )
    spec = {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [
            {"name": "not-for-the-engine", "expression": strange},
            {"name": "does-not-say-so", "expression": f"!({_find_tolerant(requests)})"},
        ],
        "variables": [
            {"name": "requests", "expression": requests},
            {"name": "home", "expression": f"{found} ? '/spec' : '/spec/spec'"},
        ],
        "mutations": [
            {"patchType": "JSONPatch", "jsonPatch": {"expression": each}}
            for each in _write_patches()
        ],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": f"{name}-{CLAIMS}"},
        "spec": spec,
    }


def _find_tolerant(requests: str) -> str:
    """Whether some request tolerates the taint already."""
    own = f"exists(t, t.?key.orValue('') == '{ENGINE_TAINT}')"
    return (
        f"{requests}.exists(r, r.?exactly.?tolerations.orValue([]).{own} || "
        f"r.?firstAvailable.orValue([]).exists(s, s.?tolerations.orValue([]).{own}))"
    )


def _write_patches() -> list[str]:
    """One for requests, and one for the alternatives of each place."""
    patches = [_write_patch("has(r.exactly)", "r.exactly", "/exactly")]
    for at in range(_MOST_ALTERNATIVES):
        there = f"r.?firstAvailable.orValue([]).size() > {at}"
        patches.append(_write_patch(there, f"r.firstAvailable[{at}]", f"/firstAvailable/{at}"))
    return patches


def _write_patch(test: str, owner: str, path: str) -> str:
    """Begin a list of tolerations where there is none, and add to it where there is one."""
    where = f"variables.home + '/devices/requests/' + string(i) + '{path}/tolerations"
    parts = []
    for has, suffix, value in (("!", "", f"[{_TOLERATION}]"), ("", "/-", _TOLERATION)):
        made = f"JSONPatch{{op: 'add', path: {where}{suffix}', value: {value}}}"
        chosen = f"{test} && {has}has({owner}.tolerations)"
        parts.append(f"variables.requests.transformList(i, r, {chosen}, {made})")
    return " + ".join(parts)
