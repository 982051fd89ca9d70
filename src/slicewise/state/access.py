"""What a person may read of a cluster, and how it is read."""

from collections.abc import Callable
from typing import Final

from slicewise.dialects import DEFAULT
from slicewise.kube.client import Call, Client
from slicewise.kube.errors import RefusedError
from slicewise.kube.objects import KeyFilter, ObjectReader
from slicewise.state.live import StateSettings

_FORBIDDEN: Final = (401, 403)


def open_reader() -> ObjectReader:
    """Reads pods and nodes with everything that any dialect looks at."""
    return ObjectReader(KeyFilter(DEFAULT.keys, DEFAULT.keys, DEFAULT.amounts))


async def choose_settings(
    client: Client, policy: str, warn: Callable[[str], None]
) -> StateSettings:
    """What may be read; where ConfigMaps are forbidden, the quota is left out with a warning."""
    for resource in ("nodes", "pods"):
        await client.read(Call("list", resource, f"/api/v1/{resource}", {"limit": "1"}))
    settings = StateSettings(policy=policy)
    path = "/api/v1/namespaces/kube-system/configmaps"
    try:
        await client.read(Call("list", "configmaps", path, {"limit": "1"}))
    except RefusedError as error:
        if error.code not in _FORBIDDEN:
            raise
        warn(f"quota and lists of unhealthy GPUs are left out: {error.message}")
        return StateSettings(policy=policy, quota=None, unhealthy_namespace=None)
    return settings
