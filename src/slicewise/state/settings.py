"""What the state follows, what it keeps of pods and nodes, and what a reader may follow."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from slicewise.dialects import DEFAULT, Dialects, QuotaLabels
from slicewise.kube.client import Call, Client
from slicewise.kube.dra.claims import claims, device_classes
from slicewise.kube.errors import RefusedError
from slicewise.kube.objects import KeyFilter, ObjectReader, PodKeys
from slicewise.kube.watch import WatchSettings
from slicewise.state.trust import TRUST_CONFIGMAP, Place

_FORBIDDEN: Final = (401, 403)
# A person waits for the answer.
_VERIFY_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    """What is followed, and how."""

    policy: str = "default"
    """The policy of pods that name none."""
    quota: tuple[str, str] | None = ("kube-system", "gpuquota")
    """Namespace and name of the quota ConfigMap; none is no quota."""
    unhealthy_namespace: str | None = "kube-system"
    """Where `unhealthy-gpu-<node>` ConfigMaps are; none ignores them."""
    trust: Place | None = TRUST_CONFIGMAP
    """Namespace and name of the ConfigMap with the keys that records are verified by; without one,
    or before it exists, records are not checked."""
    verify_seconds: float | None = 0.0
    """How long the start waits for records to be verified; the rest are verified afterwards. None
    verifies each as it is listed, for those who hold the private keys."""
    quota_labels: QuotaLabels = field(default_factory=QuotaLabels)
    """The labels of nodes by which the quota names models and pools."""
    labels: tuple[str, ...] = ()
    """Further labels of nodes and pods to keep, by how they begin."""
    quota_seconds: float = 5.0
    """How long the start waits for the quota; past it, pods are refused until it was read."""
    claims: bool = False
    """Whether ResourceClaims are followed; without, no pod is given GPUs that claims share."""
    namespaces: bool = False
    """Whether namespaces' demands on isolation are followed; whoever decides follows them."""
    expire_seconds: float = 1.0
    """How often assumptions past their deadline are looked for."""
    following: WatchSettings = field(default_factory=WatchSettings)
    """How resources are listed and watched."""


def open_reader(dialects: Dialects = DEFAULT) -> ObjectReader:
    """Reads pods and nodes with everything that any dialect looks at."""
    return ObjectReader(choose_keys(dialects))


def choose_keys(dialects: Dialects, labels: tuple[str, ...] = ()) -> KeyFilter:
    """What is kept of nodes, and of pods, by these dialects."""
    pods = PodKeys(
        exact=dialects.pod_keys,
        prefixes=dialects.pod_key_prefixes,
        labels=labels,
        amounts=dialects.pod_amounts,
        doubtful=lambda name: dialects.spelling.find(name) is not None,
    )
    keys = (*dialects.keys, *labels)
    return KeyFilter(keys, dialects.keys, dialects.amounts, pods, dialects.resources)


async def choose_settings(
    client: Client, policy: str, warn: Callable[[str], None]
) -> StateSettings:
    """What may be read; where ConfigMaps are forbidden, the quota is left out with a warning."""
    for resource in ("nodes", "pods"):
        await client.read(Call("list", resource, f"/api/v1/{resource}", {"limit": "1"}))
    path = "/api/v1/namespaces/kube-system/configmaps"
    chosen = StateSettings(policy=policy, verify_seconds=_VERIFY_SECONDS)
    named = {"fieldSelector": f"metadata.name={TRUST_CONFIGMAP[1]}"}
    refusal = await _find_refusal(client, Call("list", "configmaps", path, named))
    if refusal is not None:
        warn(f"records on pods are not verified: {refusal}")
        chosen = replace(chosen, trust=None)
    call = Call("list", "namespaces", "/api/v1/namespaces", {"limit": "1"})
    refusal = await _find_refusal(client, call)
    if refusal is not None:
        warn(f"what namespaces demand of isolation is left out: {refusal}")
    chosen = replace(chosen, namespaces=refusal is None)
    chosen = replace(chosen, claims=await _may_follow_claims(client, warn))
    refusal = await _find_refusal(client, Call("list", "configmaps", path, {"limit": "1"}))
    if refusal is None:
        return chosen
    warn(f"quota and lists of unhealthy GPUs are left out: {refusal}")
    return replace(chosen, quota=None, unhealthy_namespace=None)


async def _may_follow_claims(client: Client, warn: Callable[[str], None]) -> bool:
    """Whether the server has claims and shows them; servers before 1.34 have none."""
    try:
        for source in (claims(), device_classes()):
            call = Call("list", source.resource, source.path, {"limit": "1"})
            refusal = await _find_refusal(client, call)
            if refusal is not None:
                break
    except RefusedError as error:
        if not error.missing:
            raise
        return False
    if refusal is not None:
        warn(f"what ResourceClaims hold is left out: {refusal}")
    return refusal is None


async def _find_refusal(client: Client, call: Call) -> str | None:
    """Why a read is forbidden; None when it is not."""
    try:
        await client.read(call)
    except RefusedError as error:
        if error.code not in _FORBIDDEN:
            raise
        return error.message
    return None
