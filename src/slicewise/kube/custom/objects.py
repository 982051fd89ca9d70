"""nvidia-gpu-scheduler v0.2.0's custom resources.

Objects are applied on the server: one request makes one or changes it, and another writer's
status stays as it is.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from slicewise.kube.client import MERGE_PATCH, Call, Client
from slicewise.kube.errors import RefusedError
from slicewise.kube.objects import BareBody, Metadata
from slicewise.kube.reads import decode_answer, list_all, read_one
from slicewise.kube.sources import by_name
from slicewise.kube.watch import WatchSource

GROUP: Final = "resources.scheduler.caden2016.github.io"
API_VERSION: Final = f"{GROUP}/v1"
APPLY_PATCH: Final = "application/apply-patch+yaml"


class CustomBody(msgspec.Struct, gc=False):
    """A GpuNode or a GpuPod; what is in it, its readers know."""

    metadata: Metadata
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
    kind: str = ""


class OwnerReference(msgspec.Struct, frozen=True, rename={"api_version": "apiVersion"}):
    """Whose end is the object's own."""

    api_version: str
    kind: str
    name: str
    uid: str


async def find_node_owner(client: Client, name: str) -> OwnerReference:
    """The Node of this name as an owner."""
    found = await read_one(client, Call("get", "nodes", f"/api/v1/nodes/{quote(name)}"), BareBody)
    if found is None:
        raise RefusedError(404, "NotFound", f"node {name} is not registered")
    return OwnerReference("v1", "Node", name, found.metadata.uid)


_CUSTOM: Final = msgspec.json.Decoder(CustomBody)


class CustomObjects:
    """The objects of one kind in one namespace; every failure is a KubeError."""

    def __init__(
        self, client: Client, resource: tuple[str, str], namespace: str, *, manager: str
    ) -> None:
        """Read and write a resource, given as its plural and its kind."""
        self._client = client
        self._resource, self._kind = resource
        self._folder = f"/apis/{API_VERSION}/namespaces/{namespace}/{self._resource}"
        self._manager = manager

    async def read(self, name: str) -> CustomBody | None:
        call = Call("get", self._resource, self._path(name))
        return await read_one(self._client, call, CustomBody)

    async def list(self, labels: Mapping[str, str]) -> list[CustomBody]:
        """Those that carry all these labels."""
        return await list_all(self._client, self.source(labels))

    async def apply(
        self, name: str, owner: OwnerReference, spec: object, labels: Mapping[str, str]
    ) -> CustomBody:
        """Make the object, or make it say this."""
        body = {
            "apiVersion": API_VERSION,
            "kind": self._kind,
            "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
            "spec": spec,
        }
        call = Call("patch", self._resource, self._path(name), apply_query(self._manager))
        return decode_answer(_CUSTOM, call, await apply(self._client, call, body))

    async def patch_status(self, name: str, status: Mapping[str, str]) -> CustomBody:
        """Change these fields of its status."""
        query = {"fieldManager": self._manager}
        call = Call("patch", f"{self._resource}/status", f"{self._path(name)}/status", query)
        answer = await self._client.send(call, {"status": status}, content_type=MERGE_PATCH)
        return decode_answer(_CUSTOM, call, answer)

    async def delete(self, name: str) -> None:
        """Remove the object, if it is there."""
        try:
            await self._client.send(Call("delete", self._resource, self._path(name)), {})
        except RefusedError as error:
            if not error.missing:
                raise

    def source(
        self, labels: Mapping[str, str] | None = None
    ) -> WatchSource[CustomBody, CustomBody]:
        selector = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        return WatchSource(
            resource=self._resource,
            kind=self._kind,
            path=self._folder,
            body=CustomBody,
            read=lambda body: body,
            key=by_name,
            query={"labelSelector": selector} if selector else {},
        )

    def _path(self, name: str) -> str:
        return f"{self._folder}/{quote(name)}"


def gpu_nodes(client: Client, namespace: str, *, manager: str) -> CustomObjects:
    return CustomObjects(client, ("gpunodes", "GpuNode"), namespace, manager=manager)


def gpu_pods(client: Client, namespace: str, *, manager: str) -> CustomObjects:
    return CustomObjects(client, ("gpupods", "GpuPod"), namespace, manager=manager)


def apply_query(manager: str) -> dict[str, str]:
    """How the server is asked to apply an object as this manager."""
    # Fields that the original's agent wrote become ours.
    return {"fieldManager": manager, "force": "true"}


async def apply(client: Client, call: Call, body: object, seconds: float | None = None) -> bytes:
    """Make the object, or make it say this, in one request."""
    return await client.send(call, body, content_type=APPLY_PATCH, seconds=seconds)
