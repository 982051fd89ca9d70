"""ResourceSlices (resource.k8s.io/v1): the GPUs of one node, offered to claims.

A server drops fields whose feature gate is off without a word, so what was written is compared
with what came back, and a first write is tried without effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from slicewise.kube.client import Call, Client
from slicewise.kube.dra.claims import CORES, MEMORY
from slicewise.kube.errors import RefusedError
from slicewise.kube.objects import BareBody, Metadata
from slicewise.kube.reads import decode_answer, read_one
from slicewise.kube.sources import by_name
from slicewise.kube.watch import WatchSource
from slicewise.model import FULL, MiB, QuantityError, SlicewiseError
from slicewise.model.claim import DRIVER, GRANTED, REFUSED
from slicewise.model.quantity import parse_quantity

RESOURCE: Final = "resourceslices"
_PATH: Final = f"/apis/resource.k8s.io/v1/{RESOURCE}"
_GATES: Final = {
    "allowMultipleAllocations": "DRAConsumableCapacity",
    "requestPolicy": "DRAConsumableCapacity",
    "taints": "DRADeviceTaints",
    "bindingConditions": "DRADeviceBindingConditions",
    "bindingFailureConditions": "DRADeviceBindingConditions",
}

_OPTIONAL: Final = ("taints", "bindingConditions", "bindingFailureConditions")
Attribute = str | int | bool | tuple[int, int, int]
"""A text, a number, yes or no, or a version."""


class GateOffError(SlicewiseError):
    """The server dropped a field, because a feature gate is off."""


@dataclass(frozen=True, slots=True)
class DeviceTaint:
    """Why a device takes no new claims."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """One GPU as claims see it; whole unless a claim asks for less."""

    name: str
    memory: MiB
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    taints: tuple[DeviceTaint, ...] = ()
    taken: tuple[int, int] = (0, 0)
    """Percent and MiB that claims cannot have."""
    judged: bool = False
    """Whether a claim is bound to it only once that is granted."""


class SliceBody(msgspec.Struct, gc=False):
    metadata: Metadata
    spec: dict[str, Any] = {}
    kind: str = ""


_SLICE: Final = msgspec.json.Decoder(SliceBody)


def write_spec(node: str, devices: Sequence[SliceDevice], generation: int) -> dict[str, Any]:
    """The spec of a node's only slice."""
    return {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
        "devices": [_write_device(each) for each in devices],
    }


def find_dropped(sent: object, got: object, path: str = "spec") -> str | None:
    """The first field that was sent and did not come back as it was; None when all did."""
    if isinstance(sent, dict):
        if not isinstance(got, dict):
            return path
        parts = ((f"{path}.{key}", value, got.get(key)) for key, value in sent.items())
    elif isinstance(sent, list):
        if not isinstance(got, list) or len(got) != len(sent):
            return path
        parts = ((f"{path}[{at}]", *pair) for at, pair in enumerate(zip(sent, got, strict=True)))
    else:
        return None if _is_same(sent, got) else path
    return next((found for at, a, b in parts if (found := find_dropped(a, b, at))), None)


def find_left(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> str | None:
    """A field that a device of the slice still has and should not have; None without any.

    Devices are compared in their order, and fields that we never write are the server's own.
    """
    for ours, theirs in zip(wanted["devices"], got.get("devices") or (), strict=False):
        for field_name in _OPTIONAL:
            if field_name in theirs and field_name not in ours:
                return field_name
        if left := set(theirs.get("attributes") or ()) - set(ours["attributes"]):
            return f"attributes.{min(left)}"
    return None


def one_slice(node: str) -> WatchSource[SliceBody, SliceBody]:
    """The slices of our driver on one node."""
    return WatchSource(
        resource=RESOURCE,
        kind="ResourceSlice",
        path=_PATH,
        body=SliceBody,
        read=lambda body: body,
        key=by_name,
        query={"fieldSelector": f"spec.nodeName={node},spec.driver={DRIVER}"},
    )


class SliceClient:
    """The slice of one node; every failure is a KubeError, or says which gate is off."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node
        self.name = f"{node}-{DRIVER}"
        self._tried = False

    async def publish(self, devices: Sequence[SliceDevice]) -> SliceBody:
        """Make the slice say this, unless it does; the slice as the server has it now."""
        known = await read_one(self._client, self._call("get"), SliceBody)
        if known is None:
            return await self._create(devices)
        generation = known.spec.get("pool", {}).get("generation", 0)
        wanted = write_spec(self._node, devices, generation)
        if find_dropped(wanted, known.spec) is None and not find_left(wanted, known.spec):
            return known
        spec = write_spec(self._node, devices, generation + 1)
        body = self._document(spec, {"resourceVersion": known.metadata.resource_version})
        return await self._write(self._call("update"), body, spec)

    async def withdraw(self) -> None:
        """Remove the slice, if there is one."""
        try:
            await self._client.send(self._call("delete"), {})
        except RefusedError as error:
            if not error.missing:
                raise

    async def _create(self, devices: Sequence[SliceDevice]) -> SliceBody:
        spec = write_spec(self._node, devices, 1)
        body = self._document(spec, {"ownerReferences": [await self._find_owner()]})
        if not self._tried:
            # What a server drops is found out before any scheduler could see it.
            trial = Call("create", RESOURCE, _PATH, {"dryRun": "All"})
            _check(spec, decode_answer(_SLICE, trial, await self._client.send(trial, body)))
            self._tried = True
        return await self._write(Call("create", RESOURCE, _PATH), body, spec)

    async def _write(self, call: Call, body: object, spec: Mapping[str, Any]) -> SliceBody:
        got = decode_answer(_SLICE, call, await self._client.send(call, body))
        try:
            _check(spec, got)
        except GateOffError:
            self._tried = False
            await self.withdraw()
            raise
        return got

    async def _find_owner(self) -> dict[str, str]:
        path = f"/api/v1/nodes/{self._node}"
        node = await read_one(self._client, Call("get", "nodes", path), BareBody)
        if node is None:
            raise RefusedError(404, "NotFound", f"node {self._node} is not registered")
        return {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": node.metadata.uid}

    def _call(self, verb: str) -> Call:
        return Call(verb, RESOURCE, f"{_PATH}/{self.name}")

    def _document(self, spec: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": self.name, **meta},
            "spec": spec,
        }


def _check(spec: Mapping[str, Any], got: SliceBody) -> None:
    dropped = find_dropped(spec, got.spec)
    if dropped is None:
        return
    gate = next((gate for part, gate in _GATES.items() if f".{part}" in dropped), None)
    why = f"the feature gate {gate} is off" if gate else "this server does not know it"
    raise GateOffError(f"the API server dropped {dropped}: {why}")


def _write_device(device: SliceDevice) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": device.name,
        "attributes": {key: _write_attribute(value) for key, value in device.attributes.items()},
        "capacity": {
            CORES: _write_capacity(FULL, device.taken[0], least=0),
            MEMORY: _write_capacity(device.memory, device.taken[1], least=1, unit="Mi"),
        },
        "allowMultipleAllocations": True,
    }
    if device.judged:
        document["bindingConditions"] = [GRANTED]
        document["bindingFailureConditions"] = [REFUSED]
    if device.taints:
        document["taints"] = [_write_taint(each) for each in device.taints]
    return document


def _write_taint(taint: DeviceTaint) -> dict[str, str]:
    # An empty value does not come back, and would look as if it had been dropped.
    value = {"value": taint.value} if taint.value else {}
    return {"key": taint.key, **value, "effect": taint.effect}


def _write_capacity(amount: int, taken: int, *, least: int, unit: str = "") -> dict[str, Any]:
    # Without a least amount, a negative one would give capacity back. What a claim does not limit
    # is the whole GPU, so that it does not fit where others hold a part.
    left = max(amount - taken, least)
    valid = {"min": f"{least}{unit}"}
    if left > least:
        # The server wants room for one step; where there is none, nothing but the least fits.
        valid["step"] = f"1{unit}"
    policy = {"default": f"{amount}{unit}", "validRange": valid}
    return {"value": f"{left}{unit}", "requestPolicy": policy}


def _write_attribute(value: Attribute) -> dict[str, object]:
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    if isinstance(value, tuple):
        return {"version": ".".join(map(str, value))}
    return {"string": value}


def _is_same(sent: object, got: object) -> bool:
    if sent == got:
        return True
    # Quantities come back in another form: 40960Mi as 40Gi.
    try:
        return (
            isinstance(sent, str)
            and isinstance(got, str)
            and parse_quantity(sent) == parse_quantity(got)
        )
    except QuantityError:
        return False
