"""Deletes an object together with others, by the garbage collector of the cluster."""

from collections.abc import Mapping
from typing import Final

import msgspec

from slicewise.kube.client import MERGE_PATCH, Call, Client
from slicewise.kube.errors import RefusedError
from slicewise.kube.objects import Metadata
from slicewise.kube.reads import read_one

_RBAC: Final = "rbac.authorization.k8s.io/v1"


class _Owner(msgspec.Struct):
    metadata: Metadata


async def delete_with_role(client: Client, name: str, dependents: Mapping[str, str]) -> bool:
    """Delete a ClusterRole and what is to go with it; False when it is gone already.

    Dependents are paths by resource. They are given the role as their owner, so that one delete
    takes away the rights of whoever asks for it together with everything else.
    """
    path = f"/apis/{_RBAC}/clusterroles/{name}"
    found = await read_one(client, Call("get", "clusterroles", path), _Owner)
    if found is None:
        return False
    owner = {"apiVersion": _RBAC, "kind": "ClusterRole", "name": name, "uid": found.metadata.uid}
    for resource, dependent in dependents.items():
        try:
            await client.send(
                Call("patch", resource, dependent),
                {"metadata": {"ownerReferences": [owner]}},
                content_type=MERGE_PATCH,
            )
        except RefusedError as error:
            if not error.missing:
                raise
    await client.send(Call("delete", "clusterroles", path), {"propagationPolicy": "Background"})
    return True
