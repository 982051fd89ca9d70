"""Asking the API server what we may do, without trying it."""

from typing import Final

import msgspec

from slicewise.kube.client import Call, Client
from slicewise.kube.errors import RefusedError

_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def may_do(
    client: Client, verb: str, resource: str, *, namespace: str = "", group: str = ""
) -> bool | None:
    """Whether we may do this, everywhere or in a namespace; None when nobody can tell."""
    name, _, part = resource.partition("/")
    attributes = {
        "verb": verb,
        "group": group,
        "resource": name,
        "subresource": part,
        "namespace": namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: text for key, text in attributes.items() if text}},
    }
    try:
        content = await client.send(Call("create", "selfsubjectaccessreviews", _PATH), body)
        return msgspec.json.decode(content, type=_Review).status.allowed
    except (RefusedError, msgspec.DecodeError):
        return None
