"""Edge: serving JSON over HTTP(S), with health, limits and a graceful stop.

A service is one handler from HttpRequest to an Answer; everything else about HTTP lives here.
"""

from slicewise.httpd.message import (
    Admission,
    Answer,
    Body,
    CutError,
    Handler,
    HttpRequest,
    HttpResponse,
    Peer,
    Pieces,
    Stream,
    Upgrade,
    decode_json,
    json_response,
)
from slicewise.httpd.router import Router
from slicewise.httpd.server import Server
from slicewise.httpd.settings import ConnectionLimits, ServerSettings, Tls, is_loopback

__all__ = [
    "Admission", "Answer", "Body", "ConnectionLimits", "CutError", "Handler", "HttpRequest",
    "HttpResponse", "Peer", "Pieces", "Router", "Server", "ServerSettings", "Stream", "Tls",
    "Upgrade", "decode_json", "is_loopback", "json_response",
]  # fmt: skip
