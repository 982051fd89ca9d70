"""The private keys of an extender: how a Secret or a file holds them, and which of them signs.

A new key is published first and signs only after the overlap, when everybody has heard of it; the
key before it stays published until no pod carries its signature any more.
"""

import base64
import binascii
import json
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from slicewise.trust.keys import SigningKey, TrustError

SECRET_KEY: Final = "keys"
OVERLAP_SECONDS: Final = 60.0
_END: Final = b"-----END PRIVATE KEY-----"
_FORM: Final = """expected a JSON list like [{"created":1893456000,"seed":"<base64>"}]"""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A private key, and when it was made, in seconds since 1970."""

    key: SigningKey
    created: int

    @property
    def id(self) -> str:
        return self.key.id


def read_keyring(data: Mapping[str, bytes]) -> tuple[StoredKey, ...]:
    """The keys in a Secret's data, oldest first."""
    try:
        entries = json.loads(data.get(SECRET_KEY, b"[]"))
        found = [
            StoredKey(
                SigningKey(base64.b64decode(entry["seed"], validate=True)), int(entry["created"])
            )
            for entry in entries
        ]
    except (ValueError, TypeError, KeyError, binascii.Error, TrustError):
        # What is in there must not reach a log.
        raise TrustError(f"{SECRET_KEY}: {_FORM}") from None
    return tuple(sorted(found, key=lambda each: (each.created, each.id)))


def write_keyring(keys: Iterable[StoredKey]) -> dict[str, bytes]:
    """The Secret's data."""
    entries = [
        {"created": each.created, "seed": base64.b64encode(each.key.seed).decode()} for each in keys
    ]
    return {SECRET_KEY: json.dumps(entries).encode()}


def read_key_file(content: bytes) -> tuple[StoredKey, ...]:
    """The keys of a PEM file, the newest last."""
    blocks = [part.strip() + b"\n" + _END for part in content.split(_END)[:-1]]
    found = []
    for at, block in enumerate(blocks):
        try:
            key = load_pem_private_key(block, password=None)
        except (ValueError, TypeError) as error:
            raise TrustError(
                f"key {at + 1}: expected a PEM private key without password"
            ) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise TrustError(f"key {at + 1}: expected an Ed25519 key")
        found.append(StoredKey(SigningKey(key.private_bytes_raw()), at))
    if not found:
        raise TrustError("no key: expected a PEM private key, as `openssl genpkey` writes it")
    return tuple(found)


class SigningKeys:
    """The private keys of this process, and since when the cluster has known each of them."""

    def __init__(self, wall: Callable[[], float], overlap_seconds: float = OVERLAP_SECONDS) -> None:
        self.held: tuple[StoredKey, ...] = ()
        """Oldest first."""
        self._wall = wall
        self._overlap = overlap_seconds
        self._since: dict[str, float] = {}
        self._began = False

    def update(self, held: Iterable[StoredKey], published: Container[str]) -> None:
        """Take the keys as they are now, and note which of them are published."""
        self.held = tuple(held)
        now = self._wall()
        before, self._since = self._since, {}
        for each in self.held:
            if each.id in published:
                # What was published before this process began has been so since it was made.
                known = now if self._began else min(now, float(each.created))
                self._since[each.id] = before.get(each.id, known)
        self._began = True

    @property
    def current(self) -> SigningKey | None:
        """The key that signs: the newest that everybody knows; None while none is published."""
        known = [each for each in self.held if each.id in self._since]
        now = self._wall()
        ripe = [each for each in known if now - self._since[each.id] >= self._overlap]
        if ripe:
            return ripe[-1].key
        return min(known, key=lambda each: self._since[each.id]).key if known else None

    def require(self) -> SigningKey:
        key = self.current
        if key is None:
            raise TrustError("no signing key is published yet: retry later")
        return key

    @property
    def retired(self) -> tuple[str, ...]:
        """The keys with which nothing has been signed for as long as a write may take."""
        current = self.current
        if current is None:
            return ()
        at = next(at for at, each in enumerate(self.held) if each.id == current.id)
        since = self._since.get(current.id, self._wall())
        if self._wall() - since < 2 * self._overlap:
            return ()
        return tuple(each.id for each in self.held[:at])
