"""Marking a Node on a person's word: one annotation, read and written without losing a change."""

from collections.abc import Callable
from typing import Final

from slicewise.kube.client import MERGE_PATCH, Call, Client
from slicewise.kube.errors import RefusedError
from slicewise.kube.lists import read_one
from slicewise.kube.objects import NodeBody

_CONFLICT: Final = 409
_TRIES: Final = 8


async def annotate_node(
    client: Client, name: str, key: str, change: Callable[[str], str]
) -> tuple[str, str] | None:
    """An annotation before and after a change, '' for none; None when there is no such node."""
    path = f"/api/v1/nodes/{name}"
    for left in reversed(range(_TRIES)):
        body = await read_one(client, Call("get", "nodes", path), NodeBody)
        if body is None:
            return None
        before = (body.metadata.annotations or {}).get(key, "")
        after = change(before)
        if after == before:
            return before, after
        # The version makes sure that nobody else's change of the list is undone.
        meta = {
            "resourceVersion": body.metadata.resource_version,
            "annotations": {key: after or None},
        }
        try:
            await client.send(
                Call("patch", "nodes", path), {"metadata": meta}, content_type=MERGE_PATCH
            )
        except RefusedError as error:
            if error.code != _CONFLICT or not left:
                raise
        else:
            return before, after
    raise AssertionError("unreachable")
