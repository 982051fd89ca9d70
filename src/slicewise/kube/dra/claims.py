"""ResourceClaims (resource.k8s.io/v1): what was allocated of our driver's devices."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from slicewise.kube.client import Call, Client
from slicewise.kube.objects import ConditionBody, Metadata, read_version
from slicewise.kube.reads import read_one
from slicewise.kube.sources import by_name, by_uid
from slicewise.kube.watch import WatchSource
from slicewise.model import BYTES_PER_MIB, MiB, Percent, read_bytes
from slicewise.model.claim import DRIVER, Claim, ClaimedDevice, ClaimUser

RESOURCE: Final = "resourceclaims"
CORES: Final = "cores"
MEMORY: Final = "memory"
_TRUE: Final = "True"


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


class ResourceClaimBody(msgspec.Struct, gc=False):
    metadata: Metadata
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)
    kind: str = ""


class ClassSpec(msgspec.Struct, rename="camel", gc=False):
    extended_resource_name: str | None = None


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


def device_classes() -> WatchSource[DeviceClassBody, tuple[str, str]]:
    """The device classes, each by its name and the resource that it serves, if it does."""
    return WatchSource(
        resource="deviceclasses",
        kind="DeviceClass",
        path="/apis/resource.k8s.io/v1/deviceclasses",
        body=DeviceClassBody,
        read=lambda body: (body.metadata.name, body.spec.extended_resource_name or ""),
        key=by_name,
    )


def read_claim(body: ResourceClaimBody) -> Claim:
    """What the claim holds of our devices."""
    meta, status = body.metadata, body.status
    met = _list_met(status.devices or ())
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
    )


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
