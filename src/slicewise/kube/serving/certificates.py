"""The authority and the server's certificate: made, checked, and kept in a Secret's six keys.

An authority is used while it is valid for another year; a certificate must verify for the
service's name half a year from now, or a new one is made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_NAME: Final = "webhook-cert-ca"
LIFE: Final = timedelta(days=3650)
AUTHORITY_MARGIN: Final = timedelta(days=365)
MARGIN: Final = timedelta(days=183)
OVERLAP: Final = timedelta(days=1)
"""How long a former authority stays believed."""
_BACKDATED: Final = timedelta(minutes=5)
_BITS: Final = 2048
_COMMON_NAME_LIMIT: Final = 64
CA_KEY, CA_CERT = "ca-key.pem", "ca-cert.pem"
KEYS: Final = ("key.pem", "tls.key")
CERTS: Final = ("cert.pem", "tls.crt")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """An authority, and the server's certificate signed by it."""

    authority: KeyPair
    server: KeyPair
    former: bytes = b""
    """Authorities that were used before and are still to be believed, in PEM."""

    @property
    def trusted(self) -> bytes:
        """Every authority a client should believe, the current one first."""
        return self.authority.certificate + self.former


def make_authority(now: datetime) -> KeyPair:
    key = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, AUTHORITY_NAME)])
    builder = _builder(name, name, key.public_key(), now)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    return KeyPair(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def make_server(authority: KeyPair, host: str, now: datetime, life: timedelta = LIFE) -> KeyPair:
    """A new certificate for a service's name, and for localhost."""
    ca = x509.load_pem_x509_certificate(authority.certificate)
    ca_key = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(ca_key, rsa.RSAPrivateKey)
    key = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
    # A common name has at most 64 letters, and nobody looks at it beside the other names.
    common = x509.NameAttribute(NameOID.COMMON_NAME, host[:_COMMON_NAME_LIMIT])
    builder = _builder(x509.Name([common]), ca.subject, key.public_key(), now, life)
    names = [x509.DNSName("localhost"), x509.DNSName(host)]
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    builder = (
        builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(usage, critical=False)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
            critical=False,
        )
    )
    return KeyPair(_pem(builder.sign(ca_key, hashes.SHA256())), _key_pem(key))


def renew(identity: ServerIdentity | None, host: str, now: datetime) -> ServerIdentity:
    """A new certificate, under the same authority while that lasts for another year."""
    if identity is not None and authority_lasts(identity.authority, now):
        return ServerIdentity(
            identity.authority, make_server(identity.authority, host, now), identity.former
        )
    authority = make_authority(now)
    former = b"" if identity is None else identity.authority.certificate
    return ServerIdentity(authority, make_server(authority, host, now), former)


def is_valid(identity: ServerIdentity, host: str, now: datetime) -> bool:
    """Whether the certificate will verify for the name half a year from now, and fits its key."""
    try:
        ca = x509.load_pem_x509_certificate(identity.authority.certificate)
        server = x509.load_pem_x509_certificate(identity.server.certificate)
        key = serialization.load_pem_private_key(identity.server.key, None)
        server.verify_directly_issued_by(ca)
        found = server.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    then = now + MARGIN
    lasting = all(
        each.not_valid_before_utc <= now < each.not_valid_after_utc for each in (ca, server)
    )
    lasting = lasting and then < ca.not_valid_after_utc and then < server.not_valid_after_utc
    named = host in found.value.get_values_for_type(x509.DNSName)
    return lasting and named and server.public_key() == key.public_key()


def is_settled(identity: ServerIdentity, now: datetime) -> bool:
    """Whether the certificate is old enough for all to know its authority."""
    server = x509.load_pem_x509_certificate(identity.server.certificate)
    return now - server.not_valid_before_utc > OVERLAP


def authority_lasts(authority: KeyPair, now: datetime) -> bool:
    """Whether an authority can still sign: it is valid for another year, and its key is there."""
    try:
        ca = x509.load_pem_x509_certificate(authority.certificate)
        key = serialization.load_pem_private_key(authority.key, None)
    except (ValueError, TypeError):
        return False
    fits = isinstance(key, rsa.RSAPrivateKey) and ca.public_key() == key.public_key()
    return fits and now + AUTHORITY_MARGIN < ca.not_valid_after_utc


def read_identity(data: Mapping[str, bytes]) -> ServerIdentity | None:
    """The identity in a Secret; None when a part of it is missing or is no certificate."""
    bundle = split_pem(data.get(CA_CERT, b""))
    key, certificate = data.get(KEYS[0], b""), data.get(CERTS[0], b"")
    if not bundle or not key or not certificate:
        return None
    authority = KeyPair(bundle[0], data.get(CA_KEY, b""))
    return ServerIdentity(authority, KeyPair(certificate, key), b"".join(bundle[1:]))


def write_identity(identity: ServerIdentity) -> dict[str, bytes]:
    return {
        CA_KEY: identity.authority.key,
        CA_CERT: identity.trusted,
        **dict.fromkeys(KEYS, identity.server.key),
        **dict.fromkeys(CERTS, identity.server.certificate),
    }


def split_pem(bundle: bytes) -> list[bytes]:
    """Every certificate of a bundle by itself; empty when it cannot be read."""
    try:
        return [_pem(each) for each in x509.load_pem_x509_certificates(bundle)]
    except ValueError:
        return []


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: rsa.RSAPublicKey,
    now: datetime,
    life: timedelta = LIFE,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # Clocks of two machines are never quite equal.
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + life)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
