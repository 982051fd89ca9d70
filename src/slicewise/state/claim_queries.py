"""Questions about the claims of one pod, answered from the API server as it is now."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from slicewise.explain.candidates import LeftOut
from slicewise.explain.claim_explanation import explain_claim, sum_claims
from slicewise.explain.claim_what_if import ClaimOffers, ClaimOutcome, place_claims
from slicewise.explain.manifests import ManifestError
from slicewise.kube.client import Client
from slicewise.kube.dra.claims import claims
from slicewise.kube.dra.offers import (
    find_template,
    find_wanted,
    list_classes,
    list_offers,
    read_class_selectors,
    read_template_claim,
    read_wanted,
)
from slicewise.kube.errors import RefusedError
from slicewise.kube.reads import list_all
from slicewise.model.claim import WantedClaim

ClaimManifests = Mapping[tuple[str, str, str], dict[str, Any]]
"""Objects that are not created yet, by kind, namespace and name."""


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


def index_manifests(documents: Iterable[Mapping[str, Any]], namespace: str) -> ClaimManifests:
    """Classes, claims and templates of manifests; those that name no namespace are in this one."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for each in documents:
        kind, meta = str(each["kind"]), dict(each.get("metadata") or {})
        meta["namespace"] = "" if kind == "DeviceClass" else meta.get("namespace") or namespace
        found[kind, meta["namespace"], str(meta.get("name"))] = {**each, "metadata": meta}
    return found


async def read_claim_offers(client: Client, manifests: ClaimManifests) -> ClaimOffers:
    """What claims may be given now, with the classes of manifests beside those that exist."""
    classes = await list_classes(client)
    for (kind, _, name), body in manifests.items():
        if kind == "DeviceClass":
            classes[name] = read_class_selectors(body)
    held = sum_claims(await list_all(client, claims()))
    return ClaimOffers(await list_offers(client), held, classes)


async def find_pod_claims(
    client: Client, pod: Mapping[str, Any], manifests: ClaimManifests
) -> list[WantedClaim]:
    """What the claims of a pod that does not exist yet ask for."""
    space, owner = pod["metadata"]["namespace"], pod["metadata"]["name"]
    found = []
    for each in pod["spec"].get("resourceClaims") or ():
        try:
            found.append(await _find_pod_claim(client, space, each, manifests))
        except (KeyError, TypeError, AttributeError, ValueError, msgspec.ValidationError) as error:
            raise ManifestError(f"pod {space}/{owner}: claim {each!r}: {error}") from error
        if found[-1] is None:
            raise ManifestError(
                f"pod {space}/{owner}: claim {each.get('name')}: there is no such "
                f"{'template' if each.get('resourceClaimTemplateName') else 'claim'}, neither in "
                "the cluster nor in the files"
            )
    return [each for each in found if each is not None]


async def _find_pod_claim(
    client: Client, namespace: str, entry: Mapping[str, Any], manifests: ClaimManifests
) -> WantedClaim | None:
    if template := entry.get("resourceClaimTemplateName"):
        body = manifests.get(("ResourceClaimTemplate", namespace, template))
        body = body or await find_template(client, namespace, template)
        return None if body is None else read_template_claim(body, namespace, entry["name"])
    name = entry["resourceClaimName"]
    manifest = manifests.get(("ResourceClaim", namespace, name))
    return read_wanted(manifest) if manifest else await find_wanted(client, namespace, name)


async def place_pod_claims(
    client: Client,
    wanted: Sequence[tuple[dict[str, Any], list[str] | None, LeftOut]],
    manifests: ClaimManifests,
) -> dict[int, ClaimOutcome]:
    """The outcome of every pod that has claims, by its position; each counts for the next."""
    claiming = [at for at, each in enumerate(wanted) if each[0]["spec"].get("resourceClaims")]
    if not claiming:
        return {}
    offers = await read_claim_offers(client, manifests)
    found = {at: await find_pod_claims(client, wanted[at][0], manifests) for at in claiming}
    outcomes: dict[int, ClaimOutcome] = {}
    for at, asked in found.items():
        outcomes[at], offers = place_claims(asked, offers, wanted[at][1])
    return outcomes
