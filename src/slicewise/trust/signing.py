"""Signing and verifying records with the keys that count at this moment."""

import hashlib
from collections.abc import Callable, Iterable
from typing import Final

from slicewise.model import SignatureState, TrustPolicy
from slicewise.trust.documents import TrustDocument
from slicewise.trust.keys import PublicKeys, SigningKey

# Each is a digest of 32 bytes, so this is a bound of bytes as well: about 12 MiB.
_REMEMBERED: Final = 1 << 17


class TrustStore:
    """The published keys and the policy beside them; whoever watches them replaces both.

    It is what `RecordTrust` asks for. Whoever holds the private keys knows their signatures by the
    code at their end, so that a large cluster is read in no time.
    """

    def __init__(self, keys: PublicKeys | None = None, policy: TrustPolicy | None = None) -> None:
        self.keys = PublicKeys({}) if keys is None else keys
        self.policy = TrustPolicy() if policy is None else policy
        self.document = TrustDocument()
        """What was taken in last."""
        self._private: dict[str, SigningKey] = {}
        self._valid: dict[bytes, None] = {}

    def take(self, document: TrustDocument) -> None:
        """Believe this document from now on; an error leaves everything as it was."""
        self.keys = PublicKeys(document.keys)
        self.policy = document.policy
        self.document = document

    def hold(self, keys: Iterable[SigningKey]) -> None:
        """Verify with these private keys where their public keys are published."""
        self._private = {key.id: key for key in keys}

    def verify(self, uid: str, text: str, signature: str) -> SignatureState:
        name = signature.partition(".")[0]
        if name not in self.keys:
            return SignatureState.UNKNOWN_KEY if len(self.keys) else SignatureState.NO_KEYS
        key = self._private.get(name)
        if key is not None and key.made(uid, text, signature):
            return SignatureState.VALID
        try:
            digest = hashlib.sha256(f"{uid}\0{text}\0{signature}".encode()).digest()
        except UnicodeEncodeError:
            return SignatureState.WRONG
        if digest in self._valid:
            return SignatureState.VALID
        state = self.keys.verify(uid, text, signature)
        if state is SignatureState.VALID:
            if len(self._valid) >= _REMEMBERED:
                self._valid.clear()
            self._valid[digest] = None
        return state


class RecordSigner:
    """Signs with the leader's key of this moment, in the leader's epoch."""

    def __init__(self, key: Callable[[], SigningKey], epoch: Callable[[], int]) -> None:
        self._key = key
        self._epoch = epoch

    @property
    def epoch(self) -> int:
        return self._epoch()

    def sign(self, uid: str, text: str) -> str:
        return self._key().sign(uid, text)
