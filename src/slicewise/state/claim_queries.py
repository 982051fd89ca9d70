"""Questions about the claims of one pod, answered from the API server as it is now."""

from typing import Any

from slicewise.explain.claim_explanation import explain_claim, sum_claims
from slicewise.kube.client import Client
from slicewise.kube.dra.claims import claims
from slicewise.kube.dra.offers import find_wanted, list_classes, list_offers
from slicewise.kube.errors import RefusedError
from slicewise.kube.reads import list_all


async def explain_claims(client: Client, pod: dict[str, Any]) -> list[dict[str, Any]]:
    """What there is to say of each claim of a pod; nothing of a pod without claims."""
    namespace = pod["metadata"]["namespace"]
    told: list[dict[str, Any]] = []
    names, missing = name_claims(pod)
    if not names and not missing:
        return []
    told += [{"claim": f"{namespace}/{name}", "state": "not created yet"} for name in missing]
    try:
        wanted = [(name, await find_wanted(client, namespace, name)) for name in names]
        waits = any(each is not None and not each.claim.devices for _, each in wanted)
        devices = await list_offers(client) if waits else ()
        classes = await list_classes(client) if waits else {}
        held = sum_claims(await list_all(client, claims())) if waits else {}
    except RefusedError as error:
        state = f"not known, for it may not be read: {error.message}"
        return told + [{"claim": f"{namespace}/{name}", "state": state} for name in names]
    for name, each in wanted:
        if each is None:
            told.append({"claim": f"{namespace}/{name}", "state": "not there"})
        else:
            told.append(explain_claim(each, devices, held, classes))
    return told


def name_claims(pod: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The names of a pod's claims, and its own names for those that nobody has created yet."""
    status = pod.get("status") or {}
    made = {each["name"]: each.get("resourceClaimName") for each in _list(status, "resourceClaim")}
    names, missing = [], []
    for each in pod.get("spec", {}).get("resourceClaims") or ():
        found = each.get("resourceClaimName") or made.get(each["name"])
        if found:
            names.append(found)
        elif each["name"] not in made:
            missing.append(each["name"])
    extended = status.get("extendedResourceClaimStatus") or {}
    if extended.get("resourceClaimName"):
        names.append(extended["resourceClaimName"])
    return names, missing


def _list(status: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = status.get(f"{kind}Statuses") or []
    return found
