"""A small blocking client of the API server, for fixtures and for tests that look at objects."""

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from slicewise_testbed.errors import TestbedError
from slicewise_testbed.kubeconfig import Kubeconfig

Object = dict[str, Any]
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"


class ApiError(TestbedError):
    """The API server refused: its status code and its message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Api:
    """One user's view of one API server, over one connection that is opened when needed."""

    def __init__(self, config: Kubeconfig) -> None:
        self._address = urlsplit(config.server)
        self._tls = config.tls()
        self._line: http.client.HTTPSConnection | None = None

    def get(self, path: str, **query: str) -> Object:
        """One object or list."""
        return self.ask("GET", path, query=query)

    def create(self, path: str, body: Object) -> Object:
        """The created object, or the answer of a subresource."""
        return self.ask("POST", path, body)

    def patch(self, path: str, body: Object, kind: str = MERGE) -> Object:
        """The patched object."""
        return self.ask("PATCH", path, body, headers={"Content-Type": kind})

    def delete(self, path: str, **options: Any) -> Object:
        """The deleted object or a status."""
        return self.ask("DELETE", path, options)

    def ask(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Object:
        """The decoded answer; one outside 2xx is an error."""
        status, answer = self.raw(method, _with_query(path, query), body, headers)
        if status >= 300:
            raise ApiError(status, _message(answer))
        decoded: Object = json.loads(answer)
        return decoded

    def raw(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Status code and body, whatever they are."""
        line = self._line = self._line or self._connect(60.0)
        content = None if body is None else json.dumps(body)
        try:
            sent = {"Content-Type": "application/json", **(headers or {})}
            line.request(method, path, content, sent)
            answer = line.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def watch(self, path: str, seconds: float, **query: str) -> Iterator[Object]:
        """The events of a collection, until the time is over or the server ends the watch."""
        # A watch blocks its connection, so it has one of its own.
        line = self._connect(seconds)
        deadline = time.monotonic() + seconds
        try:
            line.request("GET", _with_query(path, {**query, "watch": "true"}))
            answer = line.getresponse()
            if answer.status >= 300:
                raise ApiError(answer.status, _message(answer.read()))
            while time.monotonic() < deadline and (text := answer.readline()):
                yield json.loads(text)
        except TimeoutError:
            return
        finally:
            line.close()

    def wait_for(
        self, path: str, holds: Callable[[Object], object], seconds: float = 60.0
    ) -> Object:
        """The object as soon as the condition holds for it; it need not exist yet."""
        collection, _, name = path.rpartition("/")
        deadline = time.monotonic() + seconds
        last: Object = {}
        selector = f"metadata.name={name}"
        while (left := deadline - time.monotonic()) > 0:
            listed = self.get(collection, fieldSelector=selector)
            version = listed["metadata"]["resourceVersion"]
            for last in listed["items"]:
                if holds(last):
                    return last
            for event in self.watch(
                collection, left, fieldSelector=selector, resourceVersion=version
            ):
                last = event["object"]
                if event["type"] in ("ADDED", "MODIFIED") and holds(last):
                    return last
        raise TestbedError(f"after {seconds:.0f} s {path} is still {json.dumps(last)}")

    def close(self) -> None:
        """The connection is closed; the next request opens another."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _connect(self, seconds: float) -> http.client.HTTPSConnection:
        host, port = self._address.hostname or "", self._address.port
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=self._tls)


def _with_query(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _message(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["message"])
    except (ValueError, KeyError):
        return answer[:500].decode(errors="replace")
