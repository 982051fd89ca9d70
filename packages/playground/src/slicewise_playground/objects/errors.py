"""Refusals of the API as Kubernetes words them: a code, a reason and the field to blame.

Every refusal reaches the client as a `Status` object.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slicewise.model import SlicewiseError
from slicewise_playground.objects.resources import ApiResource


class ApiError(SlicewiseError):
    """A refusal with everything its `Status` says."""

    def __init__(
        self, code: int, reason: str, message: str, *, details: Mapping[str, Any] | None = None
    ) -> None:
        """Keep the words of the refusal."""
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})

    def status(self) -> dict[str, Any]:
        """The `Status` object for the wire."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        body["code"] = self.code
        return body


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field that broke a rule."""

    field: str
    reason: str
    message: str


def required(field: str, message: str = "") -> FieldError:
    """The field is missing."""
    return FieldError(field, "FieldValueRequired", _join("Required value", message))


def bad_value(field: str, value: object, message: str) -> FieldError:
    """The field holds a value outside its rule."""
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {quote(value)}: {message}")


def unsupported(field: str, value: object, choices: Sequence[str]) -> FieldError:
    """The field holds none of the allowed words."""
    listed = ", ".join(f'"{choice}"' for choice in choices)
    message = f"Unsupported value: {quote(value)}: supported values: {listed}"
    return FieldError(field, "FieldValueNotSupported", message)


def duplicate(field: str, value: object) -> FieldError:
    """The field repeats a value that must be unique."""
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {quote(value)}")


def forbidden_field(field: str, message: str) -> FieldError:
    """The field may not be set or changed."""
    return FieldError(field, "FieldValueForbidden", _join("Forbidden", message))


def quote(value: object) -> str:
    """The value as an error names it: text in quotes, the rest plain."""
    return f'"{value}"' if isinstance(value, str) else str(value)


def invalid(resource: ApiResource, name: str, problems: Sequence[FieldError]) -> ApiError:
    """422: the object breaks these rules."""
    words = [f"{problem.field}: {problem.message}" for problem in problems]
    joined = words[0] if len(words) == 1 else "[" + ", ".join(words) + "]"
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.kind
    details["causes"] = [
        {"reason": problem.reason, "message": problem.message, "field": problem.field}
        for problem in problems
    ]
    title = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    message = f'{title} "{name}" is invalid: {joined}'
    return ApiError(422, "Invalid", message, details=details)


def not_found(resource: ApiResource, name: str) -> ApiError:
    """404: no such object."""
    message = f'{resource.qualified} "{name}" not found'
    return ApiError(404, "NotFound", message, details=_named(resource, name))


def unknown_path() -> ApiError:
    """404: no such path."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: ApiResource, name: str) -> ApiError:
    """409: the name is taken."""
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details=_named(resource, name))


def conflict(resource: ApiResource, name: str, why: str) -> ApiError:
    """409: the object is no longer what the writer thought."""
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=_named(resource, name))


def stale(resource: ApiResource, name: str) -> ApiError:
    """409: somebody wrote in between."""
    return conflict(
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version and try "
        "again",
    )


def forbidden(resource: ApiResource, name: str, why: str) -> ApiError:
    """403: admission refuses."""
    message = f'{resource.qualified} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, details=_named(resource, name))


def bad_request(message: str) -> ApiError:
    """400: the request cannot be read."""
    return ApiError(400, "BadRequest", message)


def expired(message: str) -> ApiError:
    """410: the history asked for is gone."""
    return ApiError(410, "Expired", message)


def too_large_revision(asked: int, current: int) -> ApiError:
    """504: the history asked for is not written yet."""
    message = f"Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiError(
        504, "Timeout", f"Timeout: {message}", details={"causes": causes, "retryAfterSeconds": 1}
    )


def method_not_allowed() -> ApiError:
    """405: the resource has no such verb."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)


def unsupported_media(content_type: str, accepted: Sequence[str]) -> ApiError:
    """415: the body is in a format the API does not read."""
    message = (
        f"the body of the request was in an unknown format ({content_type}); "
        f"accepted media types include: {', '.join(accepted)}"
    )
    return ApiError(415, "UnsupportedMediaType", message)


def too_many(message: str, retry_seconds: int) -> ApiError:
    """429: try again later."""
    return ApiError(429, "TooManyRequests", message, details={"retryAfterSeconds": retry_seconds})


def _named(resource: ApiResource, name: str) -> dict[str, Any]:
    """The details that name the object."""
    details = {"name": name}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    return details


def _join(word: str, message: str) -> str:
    """The word with its explanation, if there is one."""
    return f"{word}: {message}" if message else word
