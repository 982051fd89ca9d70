"""Edge: serving JSON over HTTP(S), with health, limits and a graceful stop.

A service is one handler from HttpRequest to an Answer; everything else about HTTP lives here.
"""

from slicewise.httpd.message import (
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
from slicewise.httpd.settings import ServerSettings, Tls

__all__ = [
    "Answer", "Body", "CutError", "Handler", "HttpRequest", "HttpResponse", "Peer", "Pieces",
    "Router", "Server", "ServerSettings", "Stream", "Tls", "Upgrade",
    "decode_json", "json_response",
]  # fmt: skip
