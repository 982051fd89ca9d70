"""Ed25519 keys by their identifiers: the leader's private key, and the public keys of all."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from slicewise.model import SignatureState, SlicewiseError

_PURPOSE: Final = b"slicewise.io/allocation\0"
_CODE_PURPOSE: Final = b"slicewise.io/code\0"
_CODE_BYTES: Final = 16
_ID_LENGTH: Final = 16
_SEED_BYTES: Final = 32
_MOST_FRESH: Final = 4096


class TrustError(SlicewiseError):
    """A key that cannot be used."""


class SigningKey:
    """A private key, and the identifier of its public key."""

    def __init__(self, seed: bytes) -> None:
        """Take over a key by its 32 bytes."""
        if len(seed) != _SEED_BYTES:
            raise TrustError(f"a signing key of {len(seed)} bytes: expected {_SEED_BYTES}")
        self.seed = seed
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = base64.b64encode(self._private.public_key().public_bytes_raw()).decode()
        """The public key as it is published."""
        self.id = identify(self._private.public_key())
        self._code_key = hashlib.sha256(_CODE_PURPOSE + seed).digest()
        self._fresh: dict[str, tuple[str, str]] = {}

    @classmethod
    def generate(cls) -> Self:
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    def sign(self, uid: str, text: str) -> str:
        """The signature of a record on the pod with this UID, with the key's identifier.

        The code at its end is for holders of the private key alone; see `made`.
        """
        message = _message(uid, text)
        signature = base64.b64encode(self._private.sign(message)).decode()
        whole = f"{self.id}.{signature}.{self._code(message)}"
        if len(self._fresh) >= _MOST_FRESH:
            self._fresh.clear()
        self._fresh[whole] = (uid, text)
        return whole

    def made(self, uid: str, text: str, signature: str) -> bool:
        """Whether this key made the signature, by its code: in a fiftieth of the time.

        What was signed a moment ago and comes back letter for letter needs no code.
        """
        if self._fresh.pop(signature, None) == (uid, text):
            return True
        code = signature.rpartition(".")[2]
        try:
            return hmac.compare_digest(self._code(_message(uid, text)).encode(), code.encode())
        except UnicodeEncodeError:
            return False

    def _code(self, message: bytes) -> str:
        digest = hmac.digest(self._code_key, message, "sha256")[:_CODE_BYTES]
        return base64.b64encode(digest).decode()


class PublicKeys:
    """The keys whose signatures are believed, by their identifiers."""

    def __init__(self, published: Mapping[str, str]) -> None:
        """Read published keys; one that cannot be read, or has another's name, is an error."""
        self._keys: dict[str, Ed25519PublicKey] = {}
        for name, text in published.items():
            key = read_public_key(text)
            if identify(key) != name:
                raise TrustError(f"public key {name}: expected the name {identify(key)}")
            self._keys[name] = key

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, name: str) -> bool:
        return name in self._keys

    def verify(self, uid: str, text: str, signature: str) -> SignatureState:
        """Whether this is a signature of the record on the pod with this UID."""
        name, _, rest = signature.partition(".")
        key = self._keys.get(name)
        if key is None:
            return SignatureState.UNKNOWN_KEY if self._keys else SignatureState.NO_KEYS
        try:
            encoded = base64.b64decode(rest.partition(".")[0], validate=True)
            key.verify(encoded, _message(uid, text))
        except (InvalidSignature, binascii.Error, ValueError):
            return SignatureState.WRONG
        return SignatureState.VALID


def read_public_key(text: str) -> Ed25519PublicKey:
    """A key as it is published: its 32 bytes in base64."""
    try:
        return Ed25519PublicKey.from_public_bytes(base64.b64decode(text, validate=True))
    except (ValueError, binascii.Error) as error:
        raise TrustError(
            f"public key {text[:60]!r}: expected the 32 bytes of an Ed25519 key in base64"
        ) from error


def identify(key: Ed25519PublicKey) -> str:
    """The key's identifier: the beginning of its SHA-256."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:_ID_LENGTH]


def _message(uid: str, text: str) -> bytes:
    return _PURPOSE + uid.encode() + b"\0" + text.encode()
