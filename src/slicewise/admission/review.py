"""The API server's AdmissionReview: the fields that decisions read, and how they are answered."""

import base64
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec

from slicewise.kube.access_reviews import User, freeze
from slicewise.model import SlicewiseError

API_VERSION: Final = "admission.k8s.io/v1"
Amounts: TypeAlias = dict[str, str | int]
Patch: TypeAlias = dict[str, Any]


class ReviewError(SlicewiseError):
    """What came is no AdmissionReview that can be answered."""


class Variable(msgspec.Struct):
    name: str = ""
    value: str = ""


class Resources(msgspec.Struct):
    limits: Amounts | None = None
    requests: Amounts | None = None


class ReviewedContainer(msgspec.Struct):
    name: str = ""
    resources: Resources = msgspec.field(default_factory=Resources)
    env: list[Variable] | None = None

    @property
    def limits(self) -> Amounts:
        return self.resources.limits or {}


class ReviewedSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    scheduler_name: str = ""
    containers: list[ReviewedContainer] | None = None
    init_containers: list[ReviewedContainer] | None = None
    driver: str = ""
    """Of a ResourceSlice."""
    custom_node_name: str = msgspec.field(default="", name="node_name")
    """Of a GpuPod."""


class ReviewedMetadata(msgspec.Struct):
    name: str = ""
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None

    def read(self, field: str) -> dict[str, str]:
        """The annotations or the labels."""
        found: dict[str, str] | None = getattr(self, field)
        return found or {}


class Reviewed(msgspec.Struct):
    """A pod, a Binding, a Node or a ResourceSlice."""

    metadata: ReviewedMetadata = msgspec.field(default_factory=ReviewedMetadata)
    spec: ReviewedSpec = msgspec.field(default_factory=ReviewedSpec)

    @property
    def containers(self) -> list[ReviewedContainer]:
        """Those of a pod, in the order in which policies name them."""
        return [*(self.spec.containers or ()), *(self.spec.init_containers or ())]


class UserInfo(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None

    @property
    def user(self) -> User:
        extra = freeze(self.extra or {})
        return User(self.username, self.uid, tuple(self.groups or ()), extra)


class ResourceName(msgspec.Struct):
    resource: str = ""


class Question(msgspec.Struct, rename="camel"):
    """One request that the API server asks about."""

    uid: str
    operation: str
    resource: ResourceName = msgspec.field(default_factory=ResourceName)
    user_info: UserInfo = msgspec.field(default_factory=UserInfo)
    object: Reviewed | None = None
    old_object: Reviewed | None = None

    @property
    def subject(self) -> Reviewed:
        """What is written, or was before it is deleted."""
        return self.object or self.old_object or Reviewed()


class _Review(msgspec.Struct, rename="camel"):
    api_version: str = ""
    request: Question | None = None


def read_question(body: bytes | bytearray) -> Question:
    """The request in a review."""
    try:
        review = msgspec.json.decode(body, type=_Review)
    except (ValueError, RecursionError) as error:
        raise ReviewError(f"AdmissionReview cannot be read: {error}") from error
    if review.api_version != API_VERSION or review.request is None:
        raise ReviewError(f"apiVersion={review.api_version!r}: expected {API_VERSION} of a request")
    return review.request


def write_answer(
    question: Question,
    *,
    patches: Sequence[Patch] = (),
    denied: tuple[int, str, str] | None = None,
    warnings: Sequence[str] = (),
    audit: str = "",
) -> dict[str, Any]:
    """The answer: what to change, or code, reason and words of a denial."""
    response: dict[str, Any] = {"uid": question.uid, "allowed": denied is None}
    if denied is not None:
        code, reason, words = denied
        response["status"] = {"code": code, "reason": reason, "message": words}
    if patches:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(list(patches))).decode()
    if warnings:
        response["warnings"] = list(warnings)
    if audit:
        response["auditAnnotations"] = {"violation": audit}
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}
