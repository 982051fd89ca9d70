"""A ConfigMap that several writers share by optimistic locking."""

from collections.abc import Mapping
from typing import Any, Final

from slicewise.kube.client import MERGE_PATCH, Call, Client
from slicewise.kube.errors import RefusedError
from slicewise.kube.objects import ConfigMap, ConfigMapBody, read_configmap
from slicewise.kube.reads import read_one

_TAKEN: Final = 409


class ConfigMapClient:
    """Reads and replaces the data of one ConfigMap; labels and other keys stay as they are."""

    def __init__(self, client: Client, namespace: str, name: str, *, manager: str) -> None:
        self._client = client
        self._folder = f"/api/v1/namespaces/{namespace}/configmaps"
        self._namespace = namespace
        self._name = name
        self._manager = {"fieldManager": manager}

    async def read(self) -> tuple[ConfigMap, str] | None:
        """The ConfigMap and its version; None when there is none."""
        call = Call("get", "configmaps", f"{self._folder}/{self._name}")
        body = await read_one(self._client, call, ConfigMapBody)
        return None if body is None else (read_configmap(body), body.metadata.resource_version)

    async def write(self, data: Mapping[str, str], version: str | None) -> bool:
        """Create it, or change that version; False when another was faster."""
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
        try:
            if version is None:
                call = Call("create", "configmaps", self._folder, self._manager)
                await self._client.send(call, body)
            else:
                metadata["resourceVersion"] = version
                path = f"{self._folder}/{self._name}"
                call = Call("patch", "configmaps", path, self._manager)
                await self._client.send(call, body, content_type=MERGE_PATCH)
        except RefusedError as error:
            if error.missing or error.code == _TAKEN:
                return False
            raise
        return True
