"""ResourceClaims (resource.k8s.io/v1): what was allocated of our driver's devices."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import msgspec

from slicewise.kube.client import Call, Client
from slicewise.kube.objects import ConditionBody, Metadata, read_version
from slicewise.kube.reads import read_one
from slicewise.kube.sources import by_name, by_uid
from slicewise.kube.watch import WatchSource
from slicewise.model import BYTES_PER_MIB, FULL, MiB, Percent, QuantityError, read_bytes
from slicewise.model.claim import (
    DRIVER,
    Claim,
    ClaimConstraint,
    ClaimedDevice,
    ClaimRequest,
    ClaimSpec,
    ClaimUser,
    DeviceClass,
    DeviceToleration,
)

RESOURCE: Final = "resourceclaims"
CORES: Final = "cores"
MEMORY: Final = "memory"
PROTECTION: Final = "resource.kubernetes.io/delete-protection"
"""The finalizer of claims that something is allocated to."""
_POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
_TRUE: Final = "True"
_EMPTY: Final = msgspec.Raw(b"{}")


class DeviceResult(msgspec.Struct, rename="camel", gc=False):
    """One device of an allocation."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str = msgspec.field(default="", name="shareID")
    consumed_capacity: dict[str, str | int] | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None


class AllocatedDevices(msgspec.Struct, gc=False):
    results: Sequence[DeviceResult] = []


class ClaimAllocation(msgspec.Struct, gc=False):
    devices: AllocatedDevices = msgspec.field(default_factory=AllocatedDevices)


class DeviceCondition(ConditionBody, gc=False):
    message: str = ""


class DeviceStatus(msgspec.Struct, gc=False):
    """What a driver says of one device of an allocation."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: list[DeviceCondition] | None = None


class Consumer(msgspec.Struct, gc=False):
    """Whoever a claim is reserved for."""

    resource: str = ""
    name: str = ""
    uid: str = ""


class ClaimStatus(msgspec.Struct, rename="camel", gc=False):
    allocation: ClaimAllocation | None = None
    devices: list[DeviceStatus] | None = None
    reserved_for: list[Consumer] | None = None


class OwnerBody(msgspec.Struct, gc=False):
    kind: str = ""
    uid: str = ""
    controller: bool | None = None


class ClaimMetadata(Metadata, rename="camel", gc=False):
    owner_references: list[OwnerBody] | None = None
    finalizers: list[str] | None = None


class ResourceClaimBody(msgspec.Struct, gc=False):
    metadata: ClaimMetadata
    spec: msgspec.Raw = _EMPTY
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)
    kind: str = ""


class ClassSpec(msgspec.Struct, rename="camel", gc=False):
    extended_resource_name: str | None = None
    selectors: list[dict[str, Any]] | None = None
    config: list[Any] | None = None


class DeviceClassBody(msgspec.Struct, gc=False):
    metadata: Metadata
    spec: ClassSpec = msgspec.field(default_factory=ClassSpec)
    kind: str = ""


async def find_claim(client: Client, namespace: str, name: str) -> Claim | None:
    """The claim; None when there is none of that name."""
    path = (
        f"/apis/resource.k8s.io/v1/namespaces/{quote(namespace, safe='')}"
        f"/resourceclaims/{quote(name, safe='')}"
    )
    body = await read_one(client, Call("get", RESOURCE, path), ResourceClaimBody)
    return None if body is None else read_claim(body)


def claims() -> WatchSource[ResourceClaimBody, Claim]:
    """The claims of all namespaces, of whatever drivers."""
    return WatchSource(
        resource=RESOURCE,
        kind="ResourceClaim",
        path=f"/apis/resource.k8s.io/v1/{RESOURCE}",
        body=ResourceClaimBody,
        read=read_claim,
        key=by_uid,
    )


def device_classes() -> WatchSource[DeviceClassBody, DeviceClass]:
    """The device classes of the cluster."""
    return WatchSource(
        resource="deviceclasses",
        kind="DeviceClass",
        path="/apis/resource.k8s.io/v1/deviceclasses",
        body=DeviceClassBody,
        read=read_class,
        key=by_name,
    )


def read_class(body: DeviceClassBody) -> DeviceClass:
    spec = body.spec
    return DeviceClass(
        body.metadata.name,
        spec.extended_resource_name or "",
        read_selectors(spec.selectors),
        bool(spec.config),
    )


def read_claim(body: ResourceClaimBody) -> Claim:
    """What the claim holds of our devices, or asks for while it has none."""
    meta, status = body.metadata, body.status
    met = _list_met(status.devices or ())
    owner = next((each for each in meta.owner_references or () if each.controller), None)
    results = () if status.allocation is None else status.allocation.devices.results
    return Claim(
        meta.uid,
        meta.namespace,
        meta.name,
        tuple(_read_device(each, met) for each in results if each.driver == DRIVER),
        tuple(
            ClaimUser(each.uid, each.name)
            for each in status.reserved_for or ()
            if each.resource == "pods"
        ),
        read_version(meta.resource_version),
        spec=read_spec(bytes(body.spec)) if status.allocation is None else None,
        owner=owner.uid if owner is not None and owner.kind == "Pod" else "",
        owner_claim=(meta.annotations or {}).get(_POD_CLAIM, ""),
        protected=PROTECTION in (meta.finalizers or ()),
    )


# Claims made from one template are alike to the letter.
@lru_cache(maxsize=4096)
def read_spec(content: bytes) -> ClaimSpec:
    """What a claim asks for; of alternatives, each is read as a request of its own."""
    devices = msgspec.json.decode(content).get("devices") or {}
    requests: list[ClaimRequest] = []
    obstacle = "config: parameters for drivers" if devices.get("config") else ""
    for each in devices.get("requests") or ():
        exactly = each.get("exactly")
        if exactly is not None:
            requests.append(_read_request(each["name"], exactly))
            obstacle = obstacle or _find_obstacle(each["name"], exactly)
        for other in each.get("firstAvailable") or ():
            requests.append(_read_request(f"{each['name']}/{other['name']}", other))
            obstacle = obstacle or f"request {each['name']}: firstAvailable"
    constraints = tuple(
        ClaimConstraint(each[kind], kind.startswith("distinct"), tuple(each.get("requests") or ()))
        for each in devices.get("constraints") or ()
        for kind in ("matchAttribute", "distinctAttribute")
        if kind in each
    )
    return ClaimSpec(tuple(requests), constraints, obstacle)


def read_selectors(listed: Sequence[dict[str, Any]] | None) -> tuple[str, ...]:
    """The expressions of selectors."""
    found = (each.get("cel") or {} for each in listed or ())
    return tuple(each["expression"] for each in found if "expression" in each)


def _find_obstacle(name: str, body: Mapping[str, Any]) -> str:
    """What of a request's form the engine does not do."""
    if body.get("adminAccess"):
        return f"request {name}: adminAccess"
    if body.get("allocationMode") not in (None, "ExactCount"):
        return f"request {name}: allocationMode {body['allocationMode']}"
    asked = (body.get("capacity") or {}).get("requests") or {}
    if CORES in asked and MEMORY not in asked and read_amount(asked[CORES]) < FULL:
        return f"request {name}: cores without memory"
    return ""


def _read_request(name: str, body: dict[str, Any]) -> ClaimRequest:
    asked = (body.get("capacity") or {}).get("requests") or {}
    cores, memory = asked.get(CORES), asked.get(MEMORY)
    return ClaimRequest(
        name,
        str(body.get("deviceClassName", "")),
        cores=None if cores is None else read_amount(cores),
        memory=None if memory is None else MiB(read_amount(memory, BYTES_PER_MIB)),
        count=int(body.get("count") or 1),
        every=body.get("allocationMode") == "All",
        selectors=read_selectors(body.get("selectors")),
        strange=tuple(sorted(set(asked) - {CORES, MEMORY})),
        tolerations=tuple(
            DeviceToleration(
                str(each.get("key", "")),
                str(each.get("operator") or "Equal"),
                str(each.get("value", "")),
                str(each.get("effect", "")),
                each.get("tolerationSeconds"),
            )
            for each in body.get("tolerations") or ()
        ),
    )


def read_amount(value: object, unit: int = 1) -> int:
    """A quantity in whole units; what is no quantity counts for nothing."""
    try:
        return -(-read_bytes("capacity", value if isinstance(value, int) else str(value)) // unit)
    except QuantityError:
        return 0


def _list_met(statuses: Sequence[DeviceStatus]) -> Mapping[tuple[str, str], dict[str, str]]:
    """The conditions that are true of each device, and what they say."""
    return {
        (each.pool, each.device): {
            condition.type: condition.message
            for condition in each.conditions or ()
            if condition.status == _TRUE
        }
        for each in statuses
        if each.driver == DRIVER
    }


def _read_device(
    result: DeviceResult, met: Mapping[tuple[str, str], dict[str, str]]
) -> ClaimedDevice:
    amounts = result.consumed_capacity or {}
    true = met.get((result.pool, result.device), {})
    failed = [each for each in result.binding_failure_conditions or () if each in true]
    return ClaimedDevice(
        # Containers name the request; of its alternatives they know nothing.
        request=result.request.partition("/")[0],
        pool=result.pool,
        device=result.device,
        cores=Percent(read_bytes(f"consumedCapacity.{CORES}", amounts.get(CORES, 0))),
        memory=MiB(-(-read_bytes(f"consumedCapacity.{MEMORY}", amounts.get(MEMORY, 0))
                     // BYTES_PER_MIB)),
        share=result.share_id,
        admin=bool(result.admin_access),
        pending=tuple(each for each in result.binding_conditions or () if each not in true),
        refused=(true[failed[0]] or failed[0]) if failed else "",
    )  # fmt: skip
