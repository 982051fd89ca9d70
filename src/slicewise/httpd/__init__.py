"""Edge: serving JSON over HTTP(S), with health, limits and a graceful stop.

A service is one handler from Request to Response or Stream; everything else about HTTP lives here.
"""

from slicewise.httpd.message import (
    Answer,
    Body,
    CutError,
    Handler,
    Peer,
    Pieces,
    Request,
    Response,
    Stream,
    Upgrade,
    decode_json,
    json_response,
)
from slicewise.httpd.server import Server, ThreadedServer
from slicewise.httpd.settings import Settings, Tls

__all__ = [
    "Answer",
    "Body",
    "CutError",
    "Handler",
    "Peer",
    "Pieces",
    "Request",
    "Response",
    "Server",
    "Settings",
    "Stream",
    "ThreadedServer",
    "Tls",
    "Upgrade",
    "decode_json",
    "json_response",
]
