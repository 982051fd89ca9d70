"""Edge: Ed25519 keys, the extender's signatures, and their verification."""

from slicewise.trust.documents import TrustDocument, read_trust, write_time, write_trust
from slicewise.trust.keyring import (
    OVERLAP_SECONDS,
    SigningKeys,
    StoredKey,
    read_key_file,
    read_keyring,
    write_keyring,
)
from slicewise.trust.keys import PublicKeys, SigningKey, TrustError, read_public_key
from slicewise.trust.signing import RecordSigner, TrustStore

__all__ = [
    "OVERLAP_SECONDS", "PublicKeys", "RecordSigner", "SigningKey", "SigningKeys", "StoredKey",
    "TrustDocument", "TrustError", "TrustStore", "read_key_file", "read_keyring",
    "read_public_key", "read_trust", "write_keyring", "write_time", "write_trust",
]  # fmt: skip
