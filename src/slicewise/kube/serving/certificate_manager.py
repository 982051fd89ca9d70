"""Keeps the server's certificate: in a shared Secret, in a file for the listener, and registered.

A new authority is believed everywhere before it is used: the API server and the agents are told
first, the listener changes a while later, and the former authority stays believed beside it.
"""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import structlog

from slicewise.kube.errors import KubeError
from slicewise.kube.secrets import Secret
from slicewise.kube.serving.certificates import (
    KeyPair,
    ServerIdentity,
    is_settled,
    is_valid,
    read_identity,
    renew,
    write_identity,
)
from slicewise.kube.watch import Seen, WatchEvent

_log = structlog.get_logger(__name__)
_RETRY_SECONDS: Final = 5.0
_REGISTER_SECONDS: Final = 60.0


class IdentityStore(Protocol):
    """Where replicas share the identity."""

    async def read(self) -> Secret | None:
        """The Secret; None when there is none."""

    async def write(self, data: dict[str, bytes], version: str | None) -> bool:
        """Create it, or replace that version; False when another replica was faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSettings:
    host: str
    """The name the certificate is for: `<service>.<namespace>.svc`."""
    folder: Path
    """Where the listener finds its files; nobody else may read them."""
    overlap_seconds: float = 30.0
    """How long a new authority is known before it is used."""
    check_seconds: float = 60.0
    """How often validity and registration are looked at."""


class CertificateManager:
    """One replica's hold on the shared identity."""

    def __init__(
        self,
        store: IdentityStore,
        register: Callable[[bytes], Awaitable[None]],
        settings: CertificateSettings,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Tell `register` of every authority the API server should know us by."""
        self.identity: ServerIdentity | None = None
        """What the listener shows now."""
        self._store = store
        self._register = register
        self._settings = settings
        self._now = now
        self._changed = asyncio.Event()

    @property
    def file(self) -> Path:
        """Certificate and key in one file, so that both change at once."""
        return self._settings.folder / "server.pem"

    async def begin(self) -> None:
        """Have an identity to listen with; the API server hears of it as soon as it can."""
        self._use(await self._settle())

    async def insist(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """The same, however long it takes until the API server lets us."""
        while True:
            try:
                return await self.begin()
            except KubeError as error:
                _log.warning("no certificate yet", error=str(error))
                await sleep(1.0)

    async def run(self) -> None:
        while True:
            pause = self._settings.check_seconds
            try:
                await self._turn()
            except KubeError as error:
                _log.warning("certificates not renewed", error=str(error))
                pause = min(pause, _RETRY_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()
                self._changed.clear()

    def take(self, changes: Sequence[WatchEvent[Secret]]) -> None:
        """The Secret changed or is gone; it is looked at soon."""
        for change in changes:
            new = change.value.data if isinstance(change, Seen) else {}
            if self.identity is None or dict(new) != write_identity(self.identity):
                self._changed.set()

    async def _turn(self) -> None:
        wanted = await self._settle()
        new = wanted.authority.certificate
        old = new if self.identity is None else self.identity.authority.certificate
        if new != old:
            # Both are believed before the listener changes.
            await self._register(new + old)
            _log.info("authority changes", seconds=self._settings.overlap_seconds)
            await asyncio.sleep(self._settings.overlap_seconds)
        self._use(wanted)
        await self._register(wanted.trusted)

    async def _settle(self) -> ServerIdentity:
        """The identity in the Secret, put there or renewed first where that is needed."""
        host = self._settings.host
        while True:
            secret = await self._store.read()
            found = None if secret is None else read_identity(secret.data)
            now = self._now()
            if found is not None and is_valid(found, host, now):
                if not found.former or not is_settled(found, now):
                    return found
                fresh = replace(found, former=b"")
            else:
                fresh = await asyncio.to_thread(renew, self._former(found), host, now)
            version = None if secret is None else secret.version
            if await self._store.write(write_identity(fresh), version):
                _log.info("certificate written", host=host)
                return fresh

    def _former(self, found: ServerIdentity | None) -> ServerIdentity | None:
        """What a new identity follows; a deleted one is followed by another authority."""
        if found is not None or self.identity is None:
            return found
        # Without its key the old authority signs nothing, and is believed for a while yet.
        keyless = KeyPair(self.identity.authority.certificate, b"")
        return ServerIdentity(keyless, self.identity.server)

    def _use(self, identity: ServerIdentity) -> None:
        if identity == self.identity:
            return
        self.identity = identity
        write_private(self.file, identity.server.certificate + identity.server.key)


async def keep_registered(
    register: Callable[[bytes], Awaitable[None]],
    authority: Path,
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Tell `register` of an authority that others renew, again and again."""
    while True:
        try:
            await register(authority.read_bytes())
        except (KubeError, OSError) as error:
            _log.warning("not registered", error=str(error))
        await sleep(_REGISTER_SECONDS)


def write_private(path: Path, content: bytes) -> None:
    """Replace a file at once, readable to its owner alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
