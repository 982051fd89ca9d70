"""What the conformance suite needs to know of a server, and a plain client for it."""

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlencode, urlsplit

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
# The API server closes a connection that was idle for a minute and a half.
_IDLE_SECONDS = 30.0
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@dataclass(frozen=True)
class Server:
    """Where a server listens and how to be let in."""

    kind: str
    url: str
    kubeconfig: Path
    headers: Mapping[str, str] = field(default_factory=dict)
    context: ssl.SSLContext | None = None


@dataclass(frozen=True)
class Reply:
    """One answer."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.body["metadata"]["name"]

    @property
    def version(self) -> str:
        return self.body["metadata"]["resourceVersion"]

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]

    def fields(self) -> list[str]:
        """The fields that a 422 blames."""
        return [cause["field"] for cause in self.body["details"]["causes"]]


class Client:
    """A client with one kept connection and no cleverness."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._connection = self.connect()
        self._used = monotonic()

    def connect(self, timeout: float = 20) -> http.client.HTTPConnection:
        parts = urlsplit(self.server.url)
        if self.server.context is None:
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        return http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=timeout, context=self.server.context
        )

    def close(self) -> None:
        self._connection.close()

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        """One request; options are `query`, `content_type` and `accept`."""
        payload = None if body is None else json.dumps(body)
        if monotonic() - self._used > _IDLE_SECONDS:
            # Servers close what nobody uses, and the next request would find out.
            self._connection.close()
        try:
            self._connection.request(
                method, _address(path, options.get("query")), payload, self._headers(options)
            )
            response = self._connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
        self._used = monotonic()
        # The real server calls its OpenAPI index plain text.
        value = json.loads(data) if data[:1] in {b"{", b"["} else data.decode()
        return Reply(response.status, value, dict(response.headers.items()))

    def _headers(self, options: Mapping[str, Any]) -> dict[str, str]:
        return {
            **self.server.headers,
            "content-type": options.get("content_type", "application/json"),
            "accept": options.get("accept", "application/json"),
        }

    def get(self, path: str, **options: Any) -> Reply:
        return self.call("GET", path, **options)

    def post(self, path: str, body: Any, **options: Any) -> Reply:
        return self.call("POST", path, body, **options)

    def put(self, path: str, body: Any, **options: Any) -> Reply:
        return self.call("PUT", path, body, **options)

    def patch(self, path: str, body: Any, content_type: str = MERGE, **options: Any) -> Reply:
        return self.call("PATCH", path, body, content_type=content_type, **options)

    def delete(self, path: str, body: Any = None, **options: Any) -> Reply:
        return self.call("DELETE", path, body, **options)

    @contextmanager
    def watch(self, path: str, **options: Any) -> Iterator["Watch"]:
        """A watch on a connection of its own; `patience` is how long it may be silent."""
        query = {"watch": "true", "timeoutSeconds": "15", **(options.pop("query", None) or {})}
        connection = self.connect(options.pop("patience", 20))
        try:
            connection.request("GET", _address(path, query), headers=self._headers(options))
            yield Watch(connection.getresponse())
        finally:
            connection.close()


class Watch:
    """The lines of a watch."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.response = response
        self.status = response.status

    def next(self) -> Any:
        """The next event; None when the watch has ended."""
        try:
            line = self.response.readline()
        except TimeoutError as error:
            raise AssertionError("the watch is silent") from error
        return json.loads(line) if line else None

    def take(self, count: int) -> list[tuple[str, str]]:
        """The type and object name of so many events."""
        events = [self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


def _address(path: str, query: Mapping[str, Any] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path
