"""What is offered to claims and what claims ask for, read once for whoever explains it."""

from typing import Any, Final
from urllib.parse import quote

import msgspec

from slicewise.kube.client import Call, Client
from slicewise.kube.dra.claims import CORES, MEMORY, ResourceClaimBody, read_claim
from slicewise.kube.dra.slices import RESOURCE, SliceBody
from slicewise.kube.reads import list_all, read_one
from slicewise.kube.sources import by_name
from slicewise.kube.watch import WatchSource
from slicewise.model import BYTES_PER_MIB, MiB, QuantityError, read_bytes
from slicewise.model.claim import DRIVER, ClaimRequest, OfferedDevice, WantedClaim

_GROUP: Final = "/apis/resource.k8s.io/v1"


async def list_offers(client: Client) -> tuple[OfferedDevice, ...]:
    """Every device of ours that claims may be allocated, as its slice tells."""
    source: WatchSource[SliceBody, tuple[OfferedDevice, ...]] = WatchSource(
        resource=RESOURCE,
        kind="ResourceSlice",
        path=f"{_GROUP}/{RESOURCE}",
        body=SliceBody,
        read=read_offers,
        key=by_name,
        query={"fieldSelector": f"spec.driver={DRIVER}"},
    )
    return tuple(each for found in await list_all(client, source) for each in found)


async def list_classes(client: Client) -> dict[str, tuple[str, ...]]:
    """The selectors of every device class, by its name."""
    call = Call("list", "deviceclasses", f"{_GROUP}/deviceclasses")
    body = await read_one(client, call, dict)
    return {each["metadata"]["name"]: read_class(each) for each in (body or {}).get("items") or ()}


async def find_wanted(client: Client, namespace: str, name: str) -> WantedClaim | None:
    """A claim with what it asks for; None when there is none of that name."""
    path = f"{_GROUP}/namespaces/{quote(namespace, safe='')}/resourceclaims/{quote(name, safe='')}"
    body = await read_one(client, Call("get", "resourceclaims", path), dict)
    return None if body is None else read_wanted(body)


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


def read_class(body: dict[str, Any]) -> tuple[str, ...]:
    """The selectors of a device class."""
    return _read_selectors(body.get("spec") or {})


def read_wanted(body: dict[str, Any]) -> WantedClaim:
    """What the claim asks for; of alternatives, each is read as a request of its own."""
    devices = body.get("spec", {}).get("devices", {})
    requests: list[ClaimRequest] = []
    for each in devices.get("requests") or ():
        if each.get("exactly") is not None:
            requests.append(_read_request(each["name"], each["exactly"]))
        requests += [
            _read_request(f"{each['name']}/{other['name']}", other)
            for other in each.get("firstAvailable") or ()
        ]
    constraints = tuple(
        f"{kind} {each[kind]}"
        for each in devices.get("constraints") or ()
        for kind in ("matchAttribute", "distinctAttribute")
        if kind in each
    )
    claim = read_claim(msgspec.convert(body, ResourceClaimBody))
    return WantedClaim(claim, tuple(requests), constraints)


def read_offers(body: SliceBody) -> tuple[OfferedDevice, ...]:
    node = str(body.spec.get("nodeName", ""))
    return tuple(_read_device(node, each) for each in body.spec.get("devices") or ())


def _read_device(node: str, body: dict[str, Any]) -> OfferedDevice:
    capacity = body.get("capacity") or {}
    cores, memory = capacity.get(CORES) or {}, capacity.get(MEMORY) or {}
    return OfferedDevice(
        node,
        str(body.get("name", "")),
        cores=_read(cores.get("value", 0)),
        memory=_read(memory.get("value", 0), BYTES_PER_MIB),
        whole_cores=_read((cores.get("requestPolicy") or {}).get("default", 0)),
        whole_memory=_read((memory.get("requestPolicy") or {}).get("default", 0), BYTES_PER_MIB),
        attributes={
            key: next(iter(value.values()), "")
            for key, value in (body.get("attributes") or {}).items()
        },
        capacity={key: str(value.get("value", "0")) for key, value in capacity.items()},
        taints=tuple(str(each.get("key", "")) for each in body.get("taints") or ()),
    )


def _read_request(name: str, body: dict[str, Any]) -> ClaimRequest:
    asked = (body.get("capacity") or {}).get("requests") or {}
    cores, memory = asked.get(CORES), asked.get(MEMORY)
    return ClaimRequest(
        name,
        str(body.get("deviceClassName", "")),
        cores=None if cores is None else _read(cores),
        memory=None if memory is None else MiB(_read(memory, BYTES_PER_MIB)),
        count=int(body.get("count") or 1),
        every=body.get("allocationMode") == "All",
        selectors=_read_selectors(body),
        strange=tuple(sorted(set(asked) - {CORES, MEMORY})),
    )


def _read_selectors(body: dict[str, Any]) -> tuple[str, ...]:
    found = (each.get("cel") or {} for each in body.get("selectors") or ())
    return tuple(each["expression"] for each in found if "expression" in each)


def _read(value: object, unit: int = 1) -> int:
    """A quantity in whole units; what is no quantity counts for nothing."""
    try:
        return -(-read_bytes("capacity", value if isinstance(value, int) else str(value)) // unit)
    except QuantityError:
        return 0
