"""The extender's keys: kept in a Secret or a file, published by the leader, changed by overlap.

Nothing is decided before a key of ours is published, for agents would start nothing. Keys of
others are left alone; an old key of ours is taken back when no pod carries its signature.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from slicewise.cluster import Problem, ProblemKind
from slicewise.dialects import ALLOCATION, SIGNATURE
from slicewise.kube.client import Client
from slicewise.kube.errors import KubeError
from slicewise.model import Pod, SignatureState
from slicewise.state.trust import (
    SIGNING_SECRET,
    Place,
    TrustWatch,
    change_keys,
    change_trust,
)
from slicewise.trust import (
    OVERLAP_SECONDS,
    PublicKeys,
    SigningKey,
    SigningKeys,
    StoredKey,
    TrustDocument,
    TrustError,
    read_key_file,
)

_SOON_SECONDS: Final = 0.2
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningSettings:
    """Where the keys are, and how they change."""

    secret: Place = SIGNING_SECRET
    """Namespace and name of the Secret of private keys; it is made with one when missing."""
    key_file: Path | None = None
    """A PEM file of private keys in place of the Secret; read again when it changes."""
    overlap_seconds: float = OVERLAP_SECONDS
    """How long a new key is published before it signs."""
    take_over: bool = False
    """Whether to begin a take-over at the start, if none was ever begun."""
    check_seconds: float = 5.0
    """How often Secret or file are looked at."""


class SigningService:
    """One replica's keys; the leader's are published and taken back."""

    def __init__(
        self,
        client: Client,
        trust: TrustWatch,
        settings: SigningSettings,
        *,
        leads: Callable[[], bool],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.keys = SigningKeys(wall, settings.overlap_seconds)
        self.problem: str | None = None
        """Why keys cannot be read or published."""
        self.pods: Callable[[], Iterable[Pod] | None] = lambda: None
        """Every pod, whose signatures keep a key published; None while they are not all known."""
        self.tried = asyncio.Event()
        """Set once the keys have been looked for."""
        self._client = client
        self._trust = trust
        self._settings = settings
        self._leads = leads
        self._wall = wall
        self._loaded_at: float | None = None
        self._file = b""

    @property
    def hindrance(self) -> str | None:
        """Why nothing can be signed; None when it can."""
        if not self._trust.readable:
            return self.problem or self._trust.problem
        if self.keys.current is None:
            return self.problem or "no signing key is published yet"
        return None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What needs a person, for the ledger's list."""
        if self.problem is None:
            return ()
        file = self._settings.key_file
        subject = "/".join(self._settings.secret) if file is None else str(file)
        return (Problem(subject, ProblemKind.UNREADABLE_TRUST.value, self.problem),)

    async def run(self) -> None:
        """Keep the keys until cancelled."""
        await self._trust.synced.wait()
        while True:
            pause = self._settings.check_seconds
            self._trust.updated.clear()
            try:
                await self.look()
                self._report(None)
                if self.hindrance is not None:
                    # Leadership, or our own publication, is awaited.
                    pause = min(pause, _SOON_SECONDS)
            except (KubeError, TrustError, OSError) as error:
                self._report(str(error))
            self.tried.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._trust.updated.wait(), pause)

    async def look(self) -> None:
        """Read the keys if that is due; publish and take back as the leader."""
        held = await self._load()
        store = self._trust.store
        store.hold(each.key for each in held)
        self.keys.update(held, store.document.keys)
        if self._leads():
            await self._publish()
            await self._take_back()

    async def _load(self) -> tuple[StoredKey, ...]:
        due = self._settings.check_seconds / 2
        if self._loaded_at is not None and self._wall() - self._loaded_at < due:
            return self.keys.held
        file = self._settings.key_file
        if file is None:
            held = await change_keys(self._client, self._settings.secret, self._make)
        else:
            held = self._join_file(await asyncio.to_thread(file.read_bytes), file)
        self._loaded_at = self._wall()
        return held

    def _make(self, before: tuple[StoredKey, ...]) -> tuple[StoredKey, ...]:
        if before:
            return before
        made = StoredKey(SigningKey.generate(), int(self._wall()))
        _log.info("signing key made", key=made.id, secret="/".join(self._settings.secret))
        return (made,)

    def _join_file(self, content: bytes, file: Path) -> tuple[StoredKey, ...]:
        """The file's keys, after those it had before until they are taken back."""
        try:
            new = read_key_file(content)
        except TrustError as error:
            raise TrustError(f"--signing-key {file}: {error}") from error
        names = {each.id for each in new}
        former = [each for each in self.keys.held if each.id not in names]
        if content != self._file:
            self._file = content
            _log.info("signing keys read", keys=",".join(sorted(names)))
        return (*former, *new)

    async def _publish(self) -> None:
        """Have every key of ours in the ConfigMap, and the take-over that was asked for."""
        known, last = self._trust.store.document, None
        if self._trust.readable:
            last = known
        lacks = any(each.id not in known.keys for each in self.keys.held)
        begins = self._settings.take_over and known.policy.takeover_began is None
        if lacks or begins or self._trust.missing:
            await change_trust(self._client, self._trust.place, self._amend, last=last)

    def _amend(self, document: TrustDocument) -> TrustDocument:
        ours = {each.id: each.key.public for each in self.keys.held}
        policy = document.policy
        if self._settings.take_over and policy.takeover_began is None:
            policy = replace(policy, takeover_began=int(self._wall()))
            _log.info("take-over begun")
        return TrustDocument({**document.keys, **ours}, policy)

    async def _take_back(self) -> None:
        """Remove keys that sign no more and whose signature no pod carries."""
        retired, pods = set(self.keys.retired), self.pods()
        if not retired or pods is None:
            return
        store = self._trust.store
        # A tenant may write any number of signatures that are none.
        gone = retired - await asyncio.to_thread(find_signers, tuple(pods), retired, store.keys)
        if not gone:
            return

        def strip(document: TrustDocument) -> TrustDocument:
            kept = {name: key for name, key in document.keys.items() if name not in gone}
            return TrustDocument(kept, document.policy)

        await change_trust(self._client, self._trust.place, strip)
        held = tuple(each for each in self.keys.held if each.id not in gone)
        if self._settings.key_file is None:
            place = self._settings.secret
            await change_keys(
                self._client, place, lambda keys: tuple(k for k in keys if k.id not in gone)
            )
        self.keys.update(held, self._trust.store.document.keys)
        _log.info("signing keys taken back", keys=",".join(sorted(gone)))

    def _report(self, problem: str | None) -> None:
        if problem != self.problem:
            self.problem = problem
            if problem is not None:
                _log.error("signing keys not kept", problem=problem)


def find_signers(pods: Iterable[Pod], asked: Collection[str], keys: PublicKeys) -> set[str]:
    """Those of the keys that really signed the record of one of these pods."""
    found: set[str] = set()
    for pod in pods:
        text, signature = pod.annotations.get(ALLOCATION), pod.annotations.get(SIGNATURE, "")
        name = signature.partition(".")[0]
        if text is None or name not in asked or name in found:
            continue
        if keys.verify(pod.uid, text, signature) is SignatureState.VALID:
            found.add(name)
    return found
