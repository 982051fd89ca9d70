"""The page's own files, read once from the package."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file: its bytes, its type, and a name for exactly these bytes."""

    body: bytes
    content_type: str
    tag: str


def read_assets() -> Mapping[str, Asset]:
    """Every file of the page by its path; the page itself is at the root."""
    found: dict[str, Asset] = {}
    for file in sorted(files("slicewise.dashboard").joinpath("page").iterdir(), key=str):
        ending = "." + file.name.rpartition(".")[2]
        if ending not in _TYPES:
            continue
        body = file.read_bytes()
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        path = "/" if file.name == "index.html" else f"/{file.name}"
        found[path] = Asset(body, _TYPES[ending], tag)
    return found
