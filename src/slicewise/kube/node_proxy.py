"""Asking a service that runs on a node's own network, through the API server's node proxy."""

from slicewise.kube.client import Call, Client


async def read_page(client: Client, node: str, port: int, path: str, *, seconds: float) -> bytes:
    """The page that a node serves on a port, as the API server fetches it."""
    where = f"/api/v1/nodes/{node}:{port}/proxy{path}"
    return await client.read_once(Call("get", "nodes/proxy", where), seconds=seconds)
