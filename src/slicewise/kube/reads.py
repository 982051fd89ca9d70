"""One-shot reads: whole lists, single objects, and pages of services behind the node proxy."""

from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from slicewise.kube.client import Call, Client
from slicewise.kube.errors import LostError, RefusedError
from slicewise.kube.objects import ListBody, ObjectReader, PodBody
from slicewise.kube.watch import UNREADABLE, KubeObject, WatchSource
from slicewise.kube.watch.list_pages import ListPages
from slicewise.model import Pod

B = TypeVar("B", bound=KubeObject)
V = TypeVar("V")
T = TypeVar("T")


async def list_all(client: Client, source: WatchSource[B, V]) -> list[V]:
    """Every object of a resource as it is now, read in pages."""
    # The struct is generic, and its decoder is made for this very resource.
    body: Any = source.body
    decoder: msgspec.json.Decoder[ListBody[B]] = msgspec.json.Decoder(ListBody[body])
    found: list[V] = []
    token, pages = "", ListPages(client, source.resource, source.path)
    call = Call("list", source.resource, source.path)
    while True:
        page = decode_answer(decoder, call, await pages.read(source.query, token))
        found += [source.read(each) for each in page.items or ()]
        token = page.metadata.continue_
        if not token:
            return found


async def read_one(client: Client, call: Call, kind: type[T]) -> T | None:
    """One object, or None when there is none of that name."""
    try:
        content = await client.read(call)
    except RefusedError as error:
        if error.missing:
            return None
        raise
    return decode_answer(msgspec.json.Decoder(kind), call, content)


async def find_pod(client: Client, reader: ObjectReader, namespace: str, name: str) -> Pod | None:
    call = Call("get", "pods", f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}")
    body = await read_one(client, call, PodBody)
    return None if body is None else reader.read_pod(body)


async def read_page(client: Client, node: str, port: int, path: str, *, seconds: float) -> bytes:
    """A page that a node serves on a port, through the API server's node proxy."""
    where = f"/api/v1/nodes/{node}:{port}/proxy{path}"
    return await client.read_once(Call("get", "nodes/proxy", where), seconds=seconds)


def decode_answer(decoder: "msgspec.json.Decoder[T]", call: Call, content: bytes) -> T:
    """What the server answered; raises LostError when that cannot be read."""
    try:
        return decoder.decode(content)
    except UNREADABLE as error:
        raise LostError(f"answer to {call.verb} {call.path} cannot be read: {error}") from error
