"""Reads lists in pages of a bounded size: whoever makes large objects makes pages of fewer.

An object may have a few MiB, and a page of hundreds of them more than a service may use.
"""

from collections.abc import Mapping
from typing import Final

from slicewise.kube.client import Call, Client
from slicewise.kube.errors import TooLargeError

PAGE: Final = 500
PAGE_BYTES: Final = 32 << 20
_SMALLER: Final = 8


class ListPages:
    """The pages of one resource, each with as many objects as an answer has room for."""

    def __init__(
        self, client: Client, resource: str, path: str, *, page: int = PAGE, most: int = PAGE_BYTES
    ) -> None:
        """Ask for `page` objects at a time, in answers of so many bytes at the most."""
        self._client = client
        self._resource = resource
        self._path = path
        self._page = page
        self._most = most
        self._size = page

    async def read(self, query: Mapping[str, str], token: str) -> bytes:
        """The page behind this token; the first without one."""
        wanted = {**query, "continue": token} if token else dict(query)
        while True:
            asked = {**wanted, "limit": str(self._size)}
            call = Call("list", self._resource, self._path, asked, self._most)
            try:
                content = await self._client.read(call)
            except TooLargeError:
                if self._size == 1:
                    raise
                self._size = max(1, self._size // _SMALLER)
                continue
            if 4 * len(content) < self._most:
                self._size = min(self._page, 2 * self._size)
            return content
