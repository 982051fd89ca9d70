"""What is offered to claims and what claims ask for, read once for whoever explains it."""

from typing import Any, Final
from urllib.parse import quote

import msgspec

from slicewise.kube.client import Call, Client
from slicewise.kube.dra.claims import (
    CORES,
    MEMORY,
    ResourceClaimBody,
    device_classes,
    read_amount,
    read_claim,
    read_selectors,
    read_spec,
)
from slicewise.kube.dra.slices import RESOURCE, SliceBody
from slicewise.kube.reads import list_all, read_one
from slicewise.kube.sources import by_name
from slicewise.kube.watch import WatchSource
from slicewise.model import BYTES_PER_MIB
from slicewise.model.claim import DRIVER, OfferedDevice, SemanticVersion, WantedClaim

_GROUP: Final = "/apis/resource.k8s.io/v1"


NamedOffers = tuple[str, tuple[OfferedDevice, ...]]
"""A slice's name and its devices."""


def offers() -> WatchSource[SliceBody, NamedOffers]:
    """The devices of ours that claims may be allocated, by slice."""
    return WatchSource(
        resource=RESOURCE,
        kind="ResourceSlice",
        path=f"{_GROUP}/{RESOURCE}",
        body=SliceBody,
        read=lambda body: (body.metadata.name, read_offers(body)),
        key=by_name,
        query={"fieldSelector": f"spec.driver={DRIVER}"},
    )


async def list_offers(client: Client) -> tuple[OfferedDevice, ...]:
    """Every device of ours that claims may be allocated, as its slice tells."""
    return tuple(each for _, found in await list_all(client, offers()) for each in found)


async def list_classes(client: Client) -> dict[str, tuple[str, ...]]:
    """The selectors of every device class, by its name."""
    found = await list_all(client, device_classes())
    return {each.name: each.selectors for each in found}


async def find_wanted(client: Client, namespace: str, name: str) -> WantedClaim | None:
    """A claim with what it asks for; None when there is none of that name."""
    path = f"{_GROUP}/namespaces/{quote(namespace, safe='')}/resourceclaims/{quote(name, safe='')}"
    call = Call("get", "resourceclaims", path)
    body = await read_one(client, call, ResourceClaimBody)
    return None if body is None else _read_wanted(body)


async def find_template(client: Client, namespace: str, name: str) -> dict[str, Any] | None:
    """A template of claims; None when there is none of that name."""
    home = f"{_GROUP}/namespaces/{quote(namespace, safe='')}/resourceclaimtemplates"
    call = Call("get", "resourceclaimtemplates", f"{home}/{quote(name, safe='')}")
    found: dict[str, Any] | None = await read_one(client, call, dict)
    return found


def read_template_claim(body: dict[str, Any], namespace: str, name: str) -> WantedClaim:
    """The claim of this name that the template would make."""
    spec = (body.get("spec") or {}).get("spec") or {}
    return read_wanted({"metadata": {"namespace": namespace, "name": name}, "spec": spec})


def read_class_selectors(body: dict[str, Any]) -> tuple[str, ...]:
    """The selectors of a device class."""
    return read_selectors((body.get("spec") or {}).get("selectors"))


def read_wanted(body: dict[str, Any]) -> WantedClaim:
    """What the claim asks for; of alternatives, each is read as a request of its own."""
    return _read_wanted(msgspec.json.decode(msgspec.json.encode(body), type=ResourceClaimBody))


def _read_wanted(body: ResourceClaimBody) -> WantedClaim:
    return WantedClaim(read_claim(body), read_spec(bytes(body.spec)))


def read_offers(body: SliceBody) -> tuple[OfferedDevice, ...]:
    node = str(body.spec.get("nodeName", ""))
    return tuple(_read_device(node, each) for each in body.spec.get("devices") or ())


def _read_device(node: str, body: dict[str, Any]) -> OfferedDevice:
    capacity = body.get("capacity") or {}
    cores, memory = capacity.get(CORES) or {}, capacity.get(MEMORY) or {}
    whole = [(each.get("requestPolicy") or {}).get("default", 0) for each in (cores, memory)]
    return OfferedDevice(
        node,
        str(body.get("name", "")),
        cores=read_amount(cores.get("value", 0)),
        memory=read_amount(memory.get("value", 0), BYTES_PER_MIB),
        whole_cores=read_amount(whole[0]),
        whole_memory=read_amount(whole[1], BYTES_PER_MIB),
        attributes={
            key: _read_attribute(value) for key, value in (body.get("attributes") or {}).items()
        },
        capacity={key: str(value.get("value", "0")) for key, value in capacity.items()},
        taints=tuple(str(each.get("key", "")) for each in body.get("taints") or ()),
    )


def _read_attribute(value: dict[str, Any]) -> str | int | bool:
    if "version" in value:
        return SemanticVersion(value["version"])
    return next(iter(value.values()), "")
