"""Whom the API server believes when it calls us: the authorities in registrations."""

import base64
from typing import Final, TypeVar

import msgspec

from slicewise.kube.client import Call, Client
from slicewise.kube.errors import KubeError
from slicewise.kube.objects import Metadata

T = TypeVar("T")
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
WEBHOOK_KINDS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


class _Registration(
    msgspec.Struct, rename={"bundle": "caBundle", "blind": "insecureSkipTLSVerify"}
):
    bundle: str = ""
    blind: bool = False


class _ApiService(msgspec.Struct):
    metadata: Metadata
    spec: _Registration = msgspec.field(default_factory=_Registration)


class _Webhook(msgspec.Struct, rename={"client": "clientConfig"}):
    name: str
    client: _Registration = msgspec.field(default_factory=_Registration)


class _WebhookConfiguration(msgspec.Struct):
    metadata: Metadata
    webhooks: list[_Webhook] = []


async def trust_authority(
    client: Client, name: str, authorities: bytes, *, manager: str, seconds: float = 2.0
) -> bool:
    """Write the CA bundle of an aggregated API's APIService; True when it changed."""
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"
    call = Call("get", "apiservices", path)
    found = _decode(await client.read_once(call, seconds=seconds), _ApiService, name).spec
    bundle = base64.b64encode(authorities).decode()
    if found.bundle == bundle and not found.blind:
        return False
    await client.send(
        Call("patch", "apiservices", path, {"fieldManager": manager}),
        {"spec": {"caBundle": bundle, "insecureSkipTLSVerify": False}},
        content_type=STRATEGIC_PATCH,
        seconds=seconds,
    )
    return True


async def trust_webhooks(
    client: Client, resource: str, name: str, authorities: bytes, *, manager: str
) -> bool:
    """Write the CA bundle of every webhook in a configuration; True when one changed."""
    path = f"/apis/admissionregistration.k8s.io/v1/{resource}/{name}"
    content = await client.read_once(Call("get", resource, path), seconds=2.0)
    found = _decode(content, _WebhookConfiguration, name).webhooks
    bundle = base64.b64encode(authorities).decode()
    if all(each.client.bundle == bundle for each in found):
        return False
    webhooks = [{"name": each.name, "clientConfig": {"caBundle": bundle}} for each in found]
    await client.send(
        Call("patch", resource, path, {"fieldManager": manager}),
        {"webhooks": webhooks},
        content_type=STRATEGIC_PATCH,
        seconds=2.0,
    )
    return True


def _decode(content: bytes, kind: type[T], name: str) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (ValueError, RecursionError) as error:
        raise KubeError(f"registration {name} cannot be read: {error}") from error
