"""The admission policies: defaults for GPU pods, and what nobody but Slicewise may write.

Who is exempt is a right, `write` of `marks.slicewise.io`, and no list of names: administrators
have it, our services are given it, and controllers are not, because they act for tenants.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from slicewise.admission import expressions as cel
from slicewise.admission.claim_policy import CLAIMS, build_claim_policy
from slicewise.dialects import DEFAULT, Dialects
from slicewise.dialects.shared.limits import CARRIER
from slicewise.kube.custom.objects import GROUP as CUSTOM_GROUP

Manifest = dict[str, Any]
API: Final = "admissionregistration.k8s.io/v1"
IGNORE_LABEL: Final = "slicewise.io/admission"
DEVICES_LABEL: Final = "slicewise.io/visible-devices"
DRIVER: Final = "gpu.slicewise.io"
NAMED_AFTER_NODES: Final = ("nodes", "gpunodes", "leases")
"""What belongs to the node of its name."""
MARK_RIGHT: Final = ("slicewise.io", "marks", "write")
MUTATING: Final = ("scheduler-name", "carrier")
"""The policies that change pods."""
VALIDATING: Final = ("marks", "node-name", "requests", "agents", "visible-devices")
"""The policies that refuse what is written."""
EXEMPTING: Final = frozenset(("marks", "node-name", "visible-devices"))
"""The policies that whoever has the right is exempt from."""
NODE_NAME: Final = "authentication.kubernetes.io/node-name"
MIRROR: Final = "kubernetes.io/config.mirror"
NODE_NAME_WORDS: Final = (
    "a pod that asks for GPUs may not set spec.nodeName: the scheduler chooses node and GPUs; "
    "use nodeSelector or affinity"
)
NODELESS_WORDS: Final = "the agent's token names no node; it must be the token of a pod"
SLICE_WORDS: Final = f"the agent writes slices of the driver {DRIVER} alone"
VISIBLE_DEVICES_WORDS: Final = (
    "NVIDIA_VISIBLE_DEVICES may be 'none' or 'void' alone: GPUs are asked for by limits; "
    f"namespaces labelled {DEVICES_LABEL}=allowed may set it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """What differs from cluster to cluster."""

    name: str = "slicewise"
    """How the names of the policies begin."""
    namespace: str = "kube-system"
    """Where Slicewise runs; pods there keep their scheduler."""
    agent_account: str = "slicewise-agent"
    """The agents' ServiceAccount in that namespace."""
    scheduler: str = "slicewise-scheduler"
    """The scheduler that pods with GPUs are given."""
    actions: tuple[str, ...] = ("Deny",)
    """What a violation leads to: Deny, or Warn and Audit while a cluster is taken over."""


def _rule(operations: Iterable[str], resources: Iterable[str], group: str = "") -> Manifest:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"] if group else ["v1"],
        "operations": list(operations),
        "resources": list(resources),
    }


_CREATED: Final = _rule(["CREATE"], ["pods"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checks:
    """What a policy looks at, computes and demands."""

    validations: Sequence[Manifest]
    conditions: Sequence[Manifest] = ()
    variables: Mapping[str, str] | None = None


def build_policies(settings: PolicySettings, dialects: Dialects = DEFAULT) -> dict[str, Manifest]:
    """Every policy, by its short name; the first two and the last are for clusters from 1.36 on."""
    asks = _condition("asks-for-gpus", cel.find_asking(dialects))
    return {
        "scheduler-name": _build_defaults(settings, asks),
        "carrier": _build_carrier(settings, dialects),
        "marks": _build_marks(settings, dialects),
        "node-name": _build_node_names(settings, asks),
        "requests": _build_requests(settings, dialects),
        "agents": _build_agents(settings),
        "visible-devices": _build_visible_devices(settings),
        CLAIMS: build_claim_policy(settings.name),
    }


def build_binding(short: str, settings: PolicySettings) -> Manifest:
    """What puts the policy of this short name into force."""
    name = f"{settings.name}-{short}"
    kind, spec = "MutatingAdmissionPolicyBinding", Manifest(policyName=name)
    if short not in (*MUTATING, CLAIMS):
        kind = "ValidatingAdmissionPolicyBinding"
        spec["validationActions"] = list(settings.actions)
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _build_defaults(settings: PolicySettings, asks: Manifest) -> Manifest:
    default = "object.spec.?schedulerName.orValue('default-scheduler') == 'default-scheduler'"
    chosen = f"Object{{spec: Object.spec{{schedulerName: {cel.quote(settings.scheduler)}}}}}"
    conditions = [
        _condition("default-scheduler", default),
        asks,
        _condition("not-placed", "!has(object.spec.nodeName) || object.spec.nodeName == ''"),
    ]
    return _mutating(settings, "scheduler-name", conditions, [chosen])


def _build_carrier(settings: PolicySettings, dialects: Dialects) -> Manifest:
    """The carrier for containers that ask for memory alone, which large nodes only count."""
    needed = cel.find_carried(dialects)
    asks = _condition("asks-for-memory-alone", f"{cel.CONTAINERS}.exists(c, {needed})")
    amounts = f"{{{cel.quote(CARRIER)}: '1'}}"
    mutations = []
    for field, listed in (
        ("containers", "object.spec.containers"),
        ("initContainers", "object.spec.?initContainers.orValue([])"),
    ):
        kind = f"Object.spec.{field}"
        added = f"{kind}.resources{{limits: {amounts}, requests: {amounts}}}"
        each = f"{kind}{{name: c.name, resources: {added}}}"
        found = f"{listed}.filter(c, {needed}).map(c, {each})"
        mutations.append(f"Object{{spec: Object.spec{{{field}: {found}}}}}")
    return _mutating(settings, "carrier", [asks], mutations)


def _mutating(
    settings: PolicySettings, short: str, conditions: Sequence[Manifest], changes: Sequence[str]
) -> Manifest:
    spec = {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": _match(_CREATED, settings=settings),
        "matchConditions": list(conditions),
        "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": each}}
            for each in changes
        ],
    }
    return {
        "apiVersion": API,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": f"{settings.name}-{short}"},
        "spec": spec,
    }


def _build_marks(settings: PolicySettings, dialects: Dialects) -> Manifest:
    variables = {"marks": cel.quote_pattern(cel.match_marks(dialects))}
    validations = []
    for field in ("annotations", "labels"):
        now, before = f"{field}Now", f"{field}Before"
        variables[now] = f"object.metadata.?{field}.orValue({{}})"
        variables[before] = f"oldObject == null ? {{}} : oldObject.metadata.?{field}.orValue({{}})"
        kept = f"(k in variables.{before} && variables.{before}[k] == variables.{now}[k])"
        forged = f"k.matches(variables.marks) && !{kept}"
        removed = f"k.matches(variables.marks) && !(k in variables.{now})"
        listed = f"variables.{now}.filter(k, {forged}) + variables.{before}.filter(k, {removed})"
        validations.append(
            {
                "expression": f"!variables.{now}.exists(k, {forged}) && "
                f"!variables.{before}.exists(k, {removed})",
                "messageExpression": f"'{cel.write_mark_words(field)}' + ({listed}).join(', ')",
                "reason": "Forbidden",
            }
        )
    rules = (
        _rule(["CREATE", "UPDATE"], ["pods"]),
        _rule(["UPDATE"], ["pods/status", "pods/ephemeralcontainers", "pods/resize"]),
        _rule(["CREATE"], ["pods/binding", "bindings"]),
    )
    checks = _Checks(conditions=[_not_exempt()], variables=variables, validations=validations)
    return _validating(settings, "marks", _match(*rules), checks)


def _build_node_names(settings: PolicySettings, asks: Manifest) -> Manifest:
    mirror = (
        f"{cel.quote(MIRROR)} in object.metadata.?annotations.orValue({{}}) && "
        "'system:nodes' in request.userInfo.groups"
    )
    conditions = [
        asks,
        _condition("names-a-node", "has(object.spec.nodeName) && object.spec.nodeName != ''"),
        _condition("no-mirror-pod", f"!({mirror})"),
        _not_exempt(),
    ]
    denial = {"expression": "false", "message": NODE_NAME_WORDS, "reason": "Forbidden"}
    checks = _Checks(conditions=conditions, validations=[denial])
    return _validating(settings, "node-name", _match(_CREATED, settings=settings), checks)


def _build_requests(settings: PolicySettings, dialects: Dialects) -> Manifest:
    known = sorted({*dialects.resources, CARRIER})
    variables = {
        "containers": cel.CONTAINERS,
        "known": cel.quote_all(known),
        "misspelt": cel.quote_map(cel.list_misspellings(dialects)),
        "domains": cel.quote_pattern(cel.match_own_domains(dialects)),
    }
    meant = "k in variables.misspelt"
    unknown = f"!(k in variables.known) && !({meant}) && k.matches(variables.domains)"
    words = "k + ' is no resource that Slicewise knows: "
    fits, told = cel.check_amounts(dialects.amount_rules)
    validations = [
        _check_names(meant, f"{words}probably ' + variables.misspelt[k] + ' was meant'"),
        _check_names(unknown, f"{words}expected one of ' + variables.known.join(', ')"),
        {"expression": fits, "messageExpression": told, "reason": "Invalid"},
    ]
    checks = _Checks(variables=variables, validations=validations)
    match = _match(_CREATED, settings=settings)
    return _validating(settings, "requests", match, checks, failure="Ignore")


def _check_names(bad: str, words: str) -> Manifest:
    """No container may ask for a name of which this is true."""
    found = f"{cel.LIMITS}.filter(k, {bad}).map(k, 'container ' + c.name + ': ' + {words})"
    listed = f"variables.containers.map(c, {found}.join('; ')).filter(t, t != '').join('; ')"
    return {
        "expression": f"!variables.containers.exists(c, {cel.LIMITS}.exists(k, {bad}))",
        "messageExpression": listed,
        "reason": "Invalid",
    }


def _build_agents(settings: PolicySettings) -> Manifest:
    account = f"system:serviceaccount:{settings.namespace}:{settings.agent_account}"
    node = f"request.userInfo.extra[?{cel.quote(NODE_NAME)}][0].orValue('')"
    # Nodes, and what nvidia-gpu-scheduler's second release keeps under their names.
    theirs = (
        f"request.resource.resource in {list(NAMED_AFTER_NODES)} ? "
        "variables.subject.metadata.name : request.resource.resource == 'gpupods' ? "
        "variables.subject.spec.?node_name.orValue('') : "
        "variables.subject.spec.?nodeName.orValue('')"
    )
    written = ["gpunodes", "gpupods", "gpupods/status"]
    slices = "request.resource.resource != 'resourceslices'"
    rules = (
        _rule(["UPDATE", "DELETE"], ["pods", "nodes"]),
        _rule(["UPDATE"], ["pods/status", "nodes/status"]),
        _rule(["CREATE", "UPDATE", "DELETE"], ["resourceslices"], "resource.k8s.io"),
        _rule(["CREATE", "UPDATE", "DELETE"], written, CUSTOM_GROUP),
        _rule(["CREATE", "UPDATE", "DELETE"], ["leases"], "coordination.k8s.io"),
    )
    checks = _Checks(
        conditions=[_condition("is-agent", f"request.userInfo.username == {cel.quote(account)}")],
        variables={
            "mine": node,
            "subject": "request.operation == 'DELETE' ? oldObject : object",
            "theirs": theirs,
        },
        validations=[
            {
                "expression": "variables.mine != ''",
                "message": NODELESS_WORDS,
                "reason": "Forbidden",
            },
            {
                "expression": "variables.mine == '' || variables.mine == variables.theirs",
                "messageExpression": "'the agent of node ' + variables.mine + "
                "' may not write what belongs to node ' + variables.theirs",
                "reason": "Forbidden",
            },
            {
                "expression": f"{slices} || variables.subject.spec.driver == '{DRIVER}'",
                "message": SLICE_WORDS,
                "reason": "Forbidden",
            },
        ],
    )
    return _validating(settings, "agents", _match(*rules), checks)


def _build_visible_devices(settings: PolicySettings) -> Manifest:
    variable = "e.name == 'NVIDIA_VISIBLE_DEVICES' && !(e.?value.orValue('') in ['none', 'void'])"
    none = f"!variables.containers.exists(c, c.?env.orValue([]).exists(e, {variable}))"
    checks = _Checks(
        conditions=[_not_exempt()],
        variables={"containers": cel.CONTAINERS},
        validations=[{"expression": none, "message": VISIBLE_DEVICES_WORDS, "reason": "Forbidden"}],
    )
    match = _match(_CREATED, settings=settings)
    allowed = {"key": DEVICES_LABEL, "operator": "NotIn", "values": ["allowed"]}
    match["namespaceSelector"]["matchExpressions"].append(allowed)
    return _validating(settings, "visible-devices", match, checks)


def _validating(
    settings: PolicySettings, short: str, match: Manifest, checks: _Checks, failure: str = "Fail"
) -> Manifest:
    spec: Manifest = {"failurePolicy": failure, "matchConstraints": match}
    if checks.conditions:
        spec["matchConditions"] = list(checks.conditions)
    if checks.variables:
        spec["variables"] = [{"name": k, "expression": e} for k, e in checks.variables.items()]
    spec["validations"] = list(checks.validations)
    return {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": f"{settings.name}-{short}"},
        "spec": spec,
    }


def _match(*rules: Manifest, settings: PolicySettings | None = None) -> Manifest:
    """What a policy is asked about; with settings, not in namespaces that are left alone."""
    match: Manifest = {"resourceRules": list(rules)}
    if settings is not None:
        own = ["kube-system"]
        own += [settings.namespace] if settings.namespace != "kube-system" else []
        match["namespaceSelector"] = {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": own},
                {"key": IGNORE_LABEL, "operator": "NotIn", "values": ["ignore"]},
            ]
        }
    return match


def _condition(name: str, expression: str) -> Manifest:
    return {"name": name, "expression": expression}


def _not_exempt() -> Manifest:
    group, resource, verb = MARK_RIGHT
    right = f"authorizer.group('{group}').resource('{resource}').check('{verb}').allowed()"
    return _condition("not-exempt", f"!{right}")
