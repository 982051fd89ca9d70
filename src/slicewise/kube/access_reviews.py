"""Access reviews: who a token belongs to, and what a user, or we ourselves, may do."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, TypeVar

import msgspec

from slicewise.kube.client import Call, Client
from slicewise.kube.errors import LostError, RefusedError

T = TypeVar("T")
_AUTHENTICATION: Final = "authentication.k8s.io/v1"
_AUTHORIZATION: Final = "authorization.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class User:
    """Who asks, as the API server knows them."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Further facts, such as the node a token was handed to, in order of their keys."""

    def find(self, key: str) -> str | None:
        values = dict(self.extra).get(key, ())
        return values[0] if len(values) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceAttributes:
    """An action on a resource, as SubjectAccessReview describes it."""

    verb: str
    resource: str
    group: str = ""
    version: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def describe(self) -> dict[str, str]:
        """What is set, by the keys of SubjectAccessReview."""
        return {key: text for key, text in asdict(self).items() if text}


class _UserBody(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _UserBody = msgspec.field(default_factory=_UserBody)


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


class AccessReviews:
    """Reviews of tokens and access; raises KubeError when the API server gives no answer."""

    def __init__(self, client: Client, *, seconds: float = 5.0) -> None:
        self._client = client
        self._seconds = seconds

    async def identify(self, token: str) -> User | None:
        """Whose token this is; None when it is nobody's."""
        spec = {"token": token}
        answer = await _review(self._client, _AUTHENTICATION, "TokenReview", spec, self._seconds)
        status = _decode(answer, _TokenReview).status
        if not status.authenticated or not status.user.username:
            return None
        user = status.user
        return User(user.username, user.uid, tuple(user.groups or ()), freeze(user.extra or {}))

    async def permits(self, user: User, wanted: ResourceAttributes) -> bool:
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": user.groups,
            "extra": dict(user.extra),
            "resourceAttributes": wanted.describe(),
        }
        kind = "SubjectAccessReview"
        answer = await _review(self._client, _AUTHORIZATION, kind, spec, self._seconds)
        status = _decode(answer, _AccessReview).status
        return status.allowed and not status.denied


def freeze(extra: Mapping[str, list[str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Further facts of a user as a value."""
    return tuple((key, tuple(extra[key])) for key in sorted(extra))


async def _review(
    client: Client, version: str, kind: str, spec: object, seconds: float | None = None
) -> bytes:
    resource = f"{kind.lower()}s"
    body = {"apiVersion": version, "kind": kind, "spec": spec}
    call = Call("create", resource, f"/apis/{version}/{resource}")
    return await client.send(call, body, seconds=seconds)


def _decode(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (ValueError, RecursionError) as error:
        raise LostError(f"answer to a review cannot be read: {error}") from error


async def may_do(
    client: Client, verb: str, resource: str, *, namespace: str = "", group: str = ""
) -> bool | None:
    """Whether we may do this, everywhere or in a namespace; None when that is unknown."""
    name, _, part = resource.partition("/")
    wanted = ResourceAttributes(
        verb=verb, resource=name, group=group, subresource=part, namespace=namespace
    )
    spec = {"resourceAttributes": wanted.describe()}
    try:
        content = await _review(client, _AUTHORIZATION, "SelfSubjectAccessReview", spec)
        return msgspec.json.decode(content, type=_AccessReview).status.allowed
    except (RefusedError, ValueError, RecursionError):
        return None
