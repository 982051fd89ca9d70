"""How the API answers: lists, and Kubernetes' Status or the original's words where it says no."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from slicewise.httpd import Answer, HttpResponse, Stream

Item = TypeVar("Item")
_PART: Final = 200
"""So many items of a list are written at once."""

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    410: "Expired",
    503: "ServiceUnavailable",
}
# The original's page for paths it does not have.
NOT_FOUND: Final = HttpResponse(
    404,
    b'{"code":404,"msg":"api not found"}\n',
    headers={"x-content-type-options": "nosniff"},
)


def write_status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def refuse(code: int, message: str) -> HttpResponse:
    status = write_status(code, _REASONS.get(code, "InternalError"), message)
    return HttpResponse(code, msgspec.json.encode(status))


def answer_list(
    frame: tuple[bytes, bytes], items: Sequence[Item], write: Callable[[Item], bytes]
) -> Answer:
    """The items between the two ends of a frame; a long list comes piece by piece."""
    if len(items) > _PART:
        return Stream(_stream(frame, items, write))
    return HttpResponse(200, frame[0] + b",".join(map(write, items)) + frame[1])


async def _stream(
    frame: tuple[bytes, bytes], items: Sequence[Item], write: Callable[[Item], bytes]
) -> AsyncIterator[bytes]:
    yield frame[0]
    for at in range(0, len(items), _PART):
        yield (b"," if at else b"") + b",".join(map(write, items[at : at + _PART]))
        # Heartbeats and other readers do not wait until all of it is written.
        await asyncio.sleep(0)
    yield frame[1]
