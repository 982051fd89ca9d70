"""A Secret that several replicas share."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from slicewise.kube.client import Call, Client
from slicewise.kube.errors import RefusedError
from slicewise.kube.objects import Metadata
from slicewise.kube.reads import read_one
from slicewise.kube.sources import by_name
from slicewise.kube.watch import WatchSource

_TAKEN: Final = 409


class SecretBody(msgspec.Struct):
    metadata: Metadata
    data: dict[str, str] | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Secret:
    """A Secret's content, and the version to replace it by."""

    data: Mapping[str, bytes]
    version: str = ""


class SecretClient:
    """Reads and replaces one Secret; replicas share it by optimistic locking."""

    def __init__(self, client: Client, namespace: str, name: str, *, manager: str) -> None:
        self._client = client
        self._folder = f"/api/v1/namespaces/{namespace}/secrets"
        self._namespace = namespace
        self._name = name
        self._manager = {"fieldManager": manager}

    async def read(self) -> Secret | None:
        body = await read_one(
            self._client, Call("get", "secrets", f"{self._folder}/{self._name}"), SecretBody
        )
        return None if body is None else read_secret(body)

    async def write(self, data: Mapping[str, bytes], version: str | None) -> bool:
        """Create it, or replace that version; False when another replica was faster."""
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if version:
            metadata["resourceVersion"] = version
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": metadata,
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }
        verb = "create" if version is None else "update"
        path = self._folder if version is None else f"{self._folder}/{self._name}"
        try:
            await self._client.send(Call(verb, "secrets", path, self._manager), body)
        except RefusedError as error:
            if error.missing or error.code == _TAKEN:
                return False
            raise
        return True

    def source(self) -> WatchSource[SecretBody, Secret]:
        """What to watch to follow this Secret."""
        return WatchSource(
            resource="secrets",
            kind="Secret",
            path=self._folder,
            body=SecretBody,
            read=read_secret,
            key=by_name,
            query={"fieldSelector": f"metadata.name={self._name}"},
        )


def read_secret(body: SecretBody) -> Secret:
    """The Secret's content; values that are not base64 are left out."""
    data = {}
    for key, text in (body.data or {}).items():
        try:
            data[key] = base64.b64decode(text, validate=True)
        except binascii.Error:
            continue
    return Secret(data, body.metadata.resource_version)
