"""Whether labels inside a Binding reach the pod: asked of the server, then seen on a pod.

API servers copy them with the feature PodTopologyLabelsAdmission, which is on from 1.35 unless
switched off, and drop them without a word where it is off. The version answers first. Where it
promises a copy, a bind is read back, because a feature can be switched off, and now and then
again, because API servers are upgraded one after the other.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from slicewise.kube.client import Call, Client
from slicewise.kube.errors import KubeError
from slicewise.kube.reads import decode_answer

_log = structlog.get_logger(__name__)
_COPIED_FROM: Final = (1, 35)
_BELIEVED_SECONDS: Final = 300.0
_VERSION: Final = Call("get", "version", "/version")


class ServerVersion(msgspec.Struct, rename="camel", gc=False):
    """The answer at /version, as far as it is read."""

    major: str = ""
    minor: str = ""
    git_version: str = ""

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor; vendors write a minor as `35+`."""
        return _number(self.major), _number(self.minor)


_ANSWER: Final = msgspec.json.Decoder(ServerVersion)


class BindingLabels:
    """What is known of one cluster's API servers, asked again after five minutes."""

    def __init__(self, client: Client, clock: Callable[[], float], *, seconds: float) -> None:
        self._client = client
        self._clock = clock
        self._seconds = seconds
        self._version = ""
        self._copied = False
        self._known_until = -1.0
        self._unproven = False
        self._dropping: set[str] = set()
        self._asking = asyncio.Lock()
        self.proving = asyncio.Lock()
        """Held by the one bind that is read back."""

    async def copied(self) -> bool:
        """Whether a Binding brings its labels along; False where nobody can tell."""
        if self._clock() >= self._known_until:
            async with self._asking:
                if self._clock() >= self._known_until:
                    await self._ask()
        return self._copied

    @property
    def unproven(self) -> bool:
        """Whether the next bind with labels is to be read back."""
        return self._copied and self._unproven

    def prove(self, *, arrived: bool) -> None:
        """A pod was read back after its bind."""
        self._unproven = False
        if not arrived:
            self._copied = False
            self._dropping.add(self._version)
            self._tell()

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                found = decode_answer(_ANSWER, _VERSION, await self._client.read_once(_VERSION))
        except (KubeError, TimeoutError):
            # Two writes do no harm where one would have done; the next bind asks again.
            self._copied = False
            return
        changed, self._version = found.git_version != self._version, found.git_version
        dropping = found.release < _COPIED_FROM or found.git_version in self._dropping
        self._copied = self._unproven = not dropping
        self._known_until = self._clock() + _BELIEVED_SECONDS
        if changed and dropping:
            self._tell()

    def _tell(self) -> None:
        why = "this API server drops those in a Binding"
        _log.info("labels of pods are written before each bind", version=self._version, reason=why)


def _number(text: str) -> int:
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0
