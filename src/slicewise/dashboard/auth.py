"""Who may look: everybody on this machine, or whoever the API server lets list the GPUs.

The page itself holds nothing of the cluster and is served to anyone; its data are not.
"""

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Final, Protocol

from slicewise.httpd import HttpRequest, is_loopback
from slicewise.kube.ttl_cache import TtlCache
from slicewise.model import SlicewiseError

_REMEMBERED: Final = 1024
_SCHEME: Final = "bearer "


class AccessDecision(Enum):
    """What became of a request for data, as an HTTP status."""

    ALLOWED = 200
    UNAUTHENTICATED = 401
    FORBIDDEN = 403
    UNAVAILABLE = 503
    """The API server could not be asked."""


class Authorizer(Protocol):
    """Decides whether a request gets data."""

    async def decide(self, request: HttpRequest) -> AccessDecision:
        """Whether this one does."""

    @property
    def wants_token(self) -> bool:
        """Whether the page must ask its reader for a token."""


Check = Callable[[str], Awaitable[AccessDecision]]
"""What the API server says of a token."""


class LoopbackAuthorizer:
    """Lets in whoever can reach a port on loopback, under a name that means this machine."""

    wants_token = False

    async def decide(self, request: HttpRequest) -> AccessDecision:
        """Refuse other names: a page elsewhere could point its own name at this address."""
        return AccessDecision.ALLOWED if is_local(request.headers) else AccessDecision.FORBIDDEN


class TokenAuthorizer:
    """Lets in tokens that the check knows; each answer is good for a few seconds."""

    wants_token = True

    def __init__(
        self, check: Check, *, seconds: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._check = check
        self._known: TtlCache[bytes, AccessDecision] = TtlCache(
            lambda _: seconds, size=_REMEMBERED, clock=clock
        )

    async def decide(self, request: HttpRequest) -> AccessDecision:
        header = request.headers.get("authorization", "")
        token = header[len(_SCHEME) :].strip()
        if not header.lower().startswith(_SCHEME) or not token:
            return AccessDecision.UNAUTHENTICATED
        # Tokens are secrets, and a cache of them should not hold any.
        key = hashlib.sha256(token.encode()).digest()
        try:
            return await self._known.get(key, lambda: self._check(token))
        except SlicewiseError:
            return AccessDecision.UNAVAILABLE


def is_local(headers: Mapping[str, str]) -> bool:
    """Whether the Host header names this machine."""
    host = headers.get("host", "")
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return is_loopback(name.strip("[]"))
