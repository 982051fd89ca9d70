"""The lease of a scheduler that an extender follows: it may lead while its own pod holds that one.

Only whom the lease names is read from it, and nothing about time: a scheduler that ends releases
its lease at once, while writes of the extender beside it may still be under way. So the extender
keeps a lease of its own as well, which says when it may write and in which epoch.
"""

from typing import Final

import msgspec
import structlog

from slicewise.kube.client import Call, Client
from slicewise.kube.errors import KubeError, RefusedError
from slicewise.kube.reads import decode_answer

_log = structlog.get_logger(__name__)
_SECONDS: Final = 4.0


class _HolderSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None


class _HeldLease(msgspec.Struct):
    spec: _HolderSpec = msgspec.field(default_factory=_HolderSpec)


_DECODER: Final = msgspec.json.Decoder(_HeldLease)


class FollowedLease:
    """Whether the lease of this name is held by a process of this host name.

    kube-scheduler's identity is its host name, which is its pod's, then `_` and a random part.
    """

    def __init__(self, client: Client, name: tuple[str, str], host: str) -> None:
        self._client = client
        self._namespace, self._name = name
        self._host = host
        self._holder: str | None = None
        self._refusal: str | None = "it was not read yet"

    @property
    def bar(self) -> str | None:
        """Why an extender on this host may not lead, with who does; None when it may."""
        name = f"Lease {self._namespace}/{self._name}"
        if self._refusal is not None:
            return f"it does not lead, because it follows {name}: {self._refusal}"
        if not self._holder:
            return f"it does not lead, because it follows {name}, and nobody holds that"
        if self._holder.partition("_")[0] == self._host:
            return None
        return f"it does not lead; {self._holder} does, as {name} says"

    async def look(self) -> None:
        """Read the lease; one that cannot be reached stays as it was last seen."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases/{self._name}"
        call = Call("get", "leases", path)
        try:
            content = await self._client.read_once(call, seconds=_SECONDS)
            self._holder = decode_answer(_DECODER, call, content).spec.holder_identity
        except RefusedError as error:
            if error.retryable:
                return
            self._holder = None
            self._refuse(None if error.missing else str(error))
            return
        except KubeError as error:
            _log.warning("followed lease not read", lease=self._name, error=str(error))
            return
        self._refuse(None)

    def _refuse(self, why: str | None) -> None:
        if why is not None and why != self._refusal:
            _log.error("followed lease not read", lease=self._name, allow="get", error=why)
        self._refusal = why
