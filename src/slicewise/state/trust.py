"""Whom the cluster believes, followed and changed: the trust ConfigMap and the Secret of keys.

What cannot be read is reported, and what was last good goes on counting.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

import structlog

from slicewise.dialects import ALLOCATION
from slicewise.dialects.shared.signed_record import SIGNATURE
from slicewise.kube import sources
from slicewise.kube.client import Client
from slicewise.kube.configmaps import ConfigMapClient
from slicewise.kube.errors import KubeError, RefusedError
from slicewise.kube.objects import ConfigMap
from slicewise.kube.secrets import SecretClient
from slicewise.kube.watch import Informer, Seen, WatchEvent, WatchSettings
from slicewise.model import Pod, SignatureState
from slicewise.trust import (
    StoredKey,
    TrustDocument,
    TrustError,
    TrustStore,
    read_keyring,
    read_trust,
    write_keyring,
    write_trust,
)

T = TypeVar("T")
Place = tuple[str, str]
"""Namespace and name."""
TRUST_CONFIGMAP: Final[Place] = ("kube-system", "slicewise-trust")
SIGNING_SECRET: Final[Place] = ("kube-system", "slicewise-signing")
MANAGER: Final = "slicewise"
_FORBIDDEN: Final = (401, 403)
_log = structlog.get_logger(__name__)


class TrustWatch:
    """Keeps a TrustStore as the ConfigMap says."""

    def __init__(
        self,
        client: Client,
        place: Place = TRUST_CONFIGMAP,
        *,
        changed: Callable[[TrustDocument | None], None] = lambda _: None,
        settings: WatchSettings | None = None,
    ) -> None:
        self.store = TrustStore()
        self.place = place
        self.readable = False
        """Whether a document without a mistake has been read."""
        self.problem: str | None = f"{_name(place)} has not been read yet"
        """Why the ConfigMap is not believed as it is now."""
        self.missing = True
        """Whether there is no such ConfigMap."""
        self.updated = asyncio.Event()
        """Set whenever the ConfigMap was looked at; the consumer clears it."""
        self.changed = changed
        """Hears of the former document after each change; of None after the first."""
        self.informer = Informer(client, sources.configmaps(*place), self._take, settings=settings)

    @property
    def synced(self) -> asyncio.Event:
        return self.informer.synced

    async def run(self) -> None:
        """Follow the ConfigMap until cancelled."""
        following = asyncio.create_task(self.informer.run())
        try:
            await self.synced.wait()
            if self.missing:
                self._report(f"{_name(self.place)} does not exist")
            await following
        finally:
            following.cancel()

    def _take(self, changes: Sequence[WatchEvent[ConfigMap]]) -> None:
        self.updated.set()
        for change in changes:
            if isinstance(change, Seen):
                if change.value.name == self.place[1]:
                    self._read(change.value)
            elif change.key == self.place[1]:
                self.missing = True
                self._report(f"{_name(self.place)} was deleted")

    def _read(self, found: ConfigMap) -> None:
        before = self.store.document if self.readable else None
        self.missing = False
        try:
            document = read_trust(found.data)
            self.store.take(document)
        except TrustError as error:
            self._report(f"{_name(self.place)}: {error}")
            return
        self.readable, self.problem = True, None
        if document != before:
            policy = document.policy
            _log.info(
                "trust changed",
                keys=",".join(sorted(document.keys)),
                taking_over=policy.taking_over,
                original_agents=len(policy.original_nodes),
            )
            self.changed(before)

    def _report(self, problem: str) -> None:
        kept = "; what was last good goes on counting" if self.readable else ""
        self.problem = problem + kept
        _log.warning("trust not read", problem=self.problem)


async def read_trust_document(client: Client, place: Place) -> TrustDocument | None:
    """The document as it is now; None when there is no ConfigMap."""
    found = await _configmap(client, place).read()
    return None if found is None else read_trust(found[0].data)


async def find_trust(client: Client, place: Place = TRUST_CONFIGMAP) -> TrustStore | None:
    """The published keys and policy, for a command; None where they cannot be had."""
    try:
        document = await read_trust_document(client, place)
        if document is None:
            return None
        store = TrustStore()
        store.take(document)
    except (RefusedError, TrustError) as error:
        _log.warning("records on pods are not verified", reason=str(error))
        return None
    return store


async def change_trust(
    client: Client,
    place: Place,
    change: Callable[[TrustDocument], TrustDocument],
    *,
    last: TrustDocument | None = None,
) -> TrustDocument:
    """The document after a change, which is tried again when another writer was faster.

    Without a ConfigMap it is made from what was last known of it.
    """
    store = _configmap(client, place)

    async def attempt() -> TrustDocument | None:
        found = await store.read()
        before = (last or TrustDocument()) if found is None else read_trust(found[0].data)
        after = change(before)
        if after == before and found is not None:
            return after
        version = None if found is None else found[1]
        return after if await store.write(write_trust(after), version) else None

    return await _insist(attempt, _name(place), "get, create and patch")


async def read_keys(client: Client, place: Place) -> tuple[StoredKey, ...]:
    """The private keys in the Secret; none when there is no Secret."""
    found = await _secret(client, place).read()
    return () if found is None else read_keyring(found.data)


async def change_keys(
    client: Client,
    place: Place,
    change: Callable[[tuple[StoredKey, ...]], tuple[StoredKey, ...]],
) -> tuple[StoredKey, ...]:
    """The private keys after a change, which is tried again when another writer was faster."""
    store = _secret(client, place)

    async def attempt() -> tuple[StoredKey, ...] | None:
        found = await store.read()
        before = () if found is None else read_keyring(found.data)
        after = change(before)
        if [each.id for each in after] == [each.id for each in before]:
            return before
        version = None if found is None else found.version
        return after if await store.write(write_keyring(after), version) else None

    return await _insist(attempt, f"Secret {'/'.join(place)}", "get, create and update")


async def _insist(attempt: Callable[[], Coroutine[Any, Any, T | None]], what: str, verbs: str) -> T:
    try:
        while True:
            done = await attempt()
            if done is not None:
                return done
    except RefusedError as error:
        if error.code not in _FORBIDDEN:
            raise
        raise KubeError(f"cannot change {what}: {error.message}; allow {verbs} of it") from error
    except TrustError as error:
        raise TrustError(f"{what}: {error}") from error


def find_affected(
    pods: Iterable[Pod], store: TrustStore, before: TrustDocument | None
) -> tuple[str, ...]:
    """The pods whose records may be believed otherwise than by the former document."""
    if before is None:
        return tuple(pod.uid for pod in pods)
    now = store.document
    keys = dict(before.keys.items() ^ now.keys.items())
    found = []
    for pod in pods:
        text, signature = pod.annotations.get(ALLOCATION, ""), pod.annotations.get(SIGNATURE, "")
        if signature.partition(".")[0] in keys or (
            before.policy != now.policy
            and store.verify(pod.uid, text, signature) is not SignatureState.VALID
        ):
            found.append(pod.uid)
    return tuple(found)


def _name(place: Place) -> str:
    return f"ConfigMap {'/'.join(place)}"


def _configmap(client: Client, place: Place) -> ConfigMapClient:
    return ConfigMapClient(client, *place, manager=MANAGER)


def _secret(client: Client, place: Place) -> SecretClient:
    return SecretClient(client, *place, manager=MANAGER)
