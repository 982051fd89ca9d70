"""Whom the API server's ConfigMap tells us to believe: its front proxy, and its users' authority.

The ConfigMap is followed, because these authorities are replaced from time to time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature

_log = structlog.get_logger(__name__)
NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"


@dataclass(frozen=True, slots=True)
class Authorities:
    """Certificates and header names by which callers are known."""

    clients: tuple[x509.Certificate, ...] = ()
    """Who signs the certificates of ordinary users."""
    proxies: tuple[x509.Certificate, ...] = ()
    """Who signs the certificates of front proxies."""
    proxy_names: frozenset[str] = frozenset()
    """Common names of front proxies; empty for any."""
    user_headers: tuple[str, ...] = ("x-remote-user",)
    uid_headers: tuple[str, ...] = ("x-remote-uid",)
    group_headers: tuple[str, ...] = ("x-remote-group",)
    extra_prefixes: tuple[str, ...] = ("x-remote-extra-",)
    bundle: str = field(default="", repr=False)
    """All of them in PEM, for the handshake."""

    def is_proxy(self, certificate: x509.Certificate, name: str) -> bool:
        """Whether a verified certificate is a front proxy's."""
        allowed = not self.proxy_names or name in self.proxy_names
        return allowed and issued_by(certificate, self.proxies)

    def is_user(self, certificate: x509.Certificate) -> bool:
        """Whether a verified certificate is an ordinary user's."""
        return issued_by(certificate, self.clients)


def read_authorities(data: Mapping[str, str]) -> Authorities:
    clients = data.get("client-ca-file", "")
    proxies = data.get("requestheader-client-ca-file", "")
    default = Authorities()
    return Authorities(
        clients=_read_certificates(clients),
        proxies=_read_certificates(proxies),
        proxy_names=frozenset(_read_words(data, "requestheader-allowed-names") or ()),
        user_headers=_lower(data, "requestheader-username-headers", default.user_headers),
        uid_headers=_lower(data, "requestheader-uid-headers", default.uid_headers),
        group_headers=_lower(data, "requestheader-group-headers", default.group_headers),
        extra_prefixes=_lower(data, "requestheader-extra-headers-prefix", default.extra_prefixes),
        bundle="\n".join(filter(None, (clients.strip(), proxies.strip(), ""))),
    )


def issued_by(certificate: x509.Certificate, authorities: tuple[x509.Certificate, ...]) -> bool:
    """Whether one of these signed the certificate; the handshake has seen to its dates."""
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


def _read_certificates(pem: str) -> tuple[x509.Certificate, ...]:
    if not pem.strip():
        return ()
    try:
        return tuple(x509.load_pem_x509_certificates(pem.encode()))
    except ValueError as error:
        _log.error("authorities cannot be read", configmap=NAME, error=str(error))
        return ()


def _read_words(data: Mapping[str, str], key: str) -> tuple[str, ...] | None:
    try:
        return tuple(msgspec.json.decode(data[key], type=list[str])) if key in data else None
    except msgspec.DecodeError as error:
        _log.error("list cannot be read", configmap=NAME, key=key, error=str(error))
        return None


def _lower(data: Mapping[str, str], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    words = _read_words(data, key)
    return default if words is None else tuple(word.lower() for word in words)
