"""Who calls, and whether they may: front proxies, certificates and tokens; never anonymous.

Headers that name a user count only from the front proxy. An agent may speak for its own node
alone: the one its certificate is for, or the one its token was handed to. Whom to believe stands
in the API server's ConfigMap, which is followed, because authorities are replaced now and then.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol
from urllib.parse import unquote

import msgspec
import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from slicewise.httpd import HttpRequest
from slicewise.kube.access_reviews import ResourceAttributes, User
from slicewise.kube.ttl_cache import TtlCache

_log = structlog.get_logger(__name__)
NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"
MASTERS: Final = "system:masters"
NODES_GROUP: Final = "system:nodes"
NODE_USER: Final = "system:node:"
NODE_CLAIM: Final = "authentication.kubernetes.io/node-name"
_BEARER: Final = "bearer "
_KNOWN_SECONDS: Final = 60.0
_UNKNOWN_SECONDS: Final = 5.0
_RIGHT_SECONDS: Final = 10.0


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


class Reviewer(Protocol):
    """Who knows tokens and rights."""

    async def identify(self, token: str) -> User | None:
        """Whose token this is; None when it is unknown."""

    async def permits(self, user: User, attributes: ResourceAttributes) -> bool:
        """Whether the user may do this."""


class RequestAuth:
    def __init__(self, reviewer: Reviewer, authorities: Callable[[], Authorities]) -> None:
        self._reviewer = reviewer
        self._authorities = authorities
        self._tokens: TtlCache[bytes, User | None] = TtlCache(
            lambda user: _UNKNOWN_SECONDS if user is None else _KNOWN_SECONDS
        )
        self._rights: TtlCache[tuple[User, ResourceAttributes], bool] = TtlCache(
            lambda _: _RIGHT_SECONDS
        )

    async def identify(self, request: HttpRequest) -> User | None:
        """Who asks; None for a stranger. Raises KubeError when the API server cannot be asked."""
        authorities = self._authorities()
        peer = request.peer
        if peer is not None:
            certificate = _load(peer.certificate)
            if authorities.is_proxy(certificate, peer.common_name):
                return read_headers(request, authorities)
            if peer.common_name and authorities.is_user(certificate):
                return User(peer.common_name, groups=(*peer.organizations, "system:authenticated"))
        shown = request.headers.get("authorization", "")
        if shown[: len(_BEARER)].lower() != _BEARER:
            return None
        token = shown[len(_BEARER) :].strip()
        if not token:
            return None
        # The token itself is not kept.
        digest = hashlib.sha256(token.encode()).digest()
        return await self._tokens.get(digest, lambda: self._reviewer.identify(token))

    async def permits(self, user: User, attributes: ResourceAttributes) -> bool:
        """Whether the user may do this, by what was true a few seconds ago at most."""
        if MASTERS in user.groups:
            return True
        return await self._rights.get(
            (user, attributes), lambda: self._reviewer.permits(user, attributes)
        )


def read_headers(request: HttpRequest, authorities: Authorities) -> User | None:
    names = [value for key, value in request.fields if key in authorities.user_headers]
    if not names or not names[0]:
        return None
    uids = [value for key, value in request.fields if key in authorities.uid_headers]
    groups = tuple(value for key, value in request.fields if key in authorities.group_headers)
    extra: dict[str, list[str]] = {}
    for key, value in request.fields:
        for prefix in authorities.extra_prefixes:
            if key.startswith(prefix):
                extra.setdefault(unquote(key.removeprefix(prefix)), []).append(value)
    facts = tuple((key, tuple(extra[key])) for key in sorted(extra))
    return User(names[0], uids[0] if uids else "", groups, facts)


def find_node(user: User) -> str | None:
    """The node that the user's certificate is for or its token was handed to, if it is one's."""
    if user.name.startswith(NODE_USER) and NODES_GROUP in user.groups:
        return user.name.removeprefix(NODE_USER) or None
    return user.find(NODE_CLAIM) or None


@lru_cache(maxsize=1024)
def _load(certificate: bytes) -> x509.Certificate:
    return x509.load_der_x509_certificate(certificate)


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
    except (ValueError, RecursionError) as error:
        _log.error("list cannot be read", configmap=NAME, key=key, error=str(error))
        return None


def _lower(data: Mapping[str, str], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    words = _read_words(data, key)
    return default if words is None else tuple(word.lower() for word in words)
