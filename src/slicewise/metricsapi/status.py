"""How the API says no: Kubernetes' Status for its clients, the original's words elsewhere."""

from typing import Any, Final

import msgspec

from slicewise.httpd import HttpResponse

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
