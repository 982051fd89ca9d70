"""Who we are to the API server, and whom we trust: an address, TLS and a bearer token.

A token in a file is read again when the file changes; one from a command when it expires.
"""

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

import msgspec

from slicewise.kube.errors import AccessError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_COMMAND_SECONDS: Final = 60.0
_EARLY_SECONDS: Final = 60.0


class Token(Protocol):
    async def read(self) -> str:
        """The token to send now."""


@dataclass(frozen=True, slots=True)
class FixedToken:
    text: str = field(repr=False)

    async def read(self) -> str:
        return self.text


class FileToken:
    """A token in a file that the kubelet replaces from time to time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._text = ""

    async def read(self) -> str:
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_ino)
            if stamp != self._stamp:
                self._text, self._stamp = self._path.read_text().strip(), stamp
        except OSError as error:
            # The kubelet swaps the file; the last token outlives such a moment.
            if not self._text:
                raise AccessError(f"cannot read token {self._path}: {error.strerror}") from error
        return self._text


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct):
    status: _ExecStatus


class CommandToken:
    """A token printed by a command, as cloud providers issue theirs."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        api_version: str,
        now: Callable[[], datetime],
    ) -> None:
        self._argv = tuple(argv)
        self._environment = dict(environment)
        self._api_version = api_version
        self._now = now
        self._status: _ExecStatus | None = None
        self._lock = asyncio.Lock()

    async def read(self) -> str:
        """The token, renewed shortly before it expires."""
        async with self._lock:
            if self._status is None or self._ends(self._status):
                self._status = await self._run()
            return self._status.token

    def _ends(self, status: _ExecStatus) -> bool:
        if status.expiration_timestamp is None:
            return False
        left = status.expiration_timestamp - self._now()
        return left.total_seconds() < _EARLY_SECONDS

    async def _run(self) -> _ExecStatus:
        about = {
            "apiVersion": self._api_version,
            "kind": "ExecCredential",
            "spec": {"interactive": False},
        }
        asked = msgspec.json.encode(about).decode()
        name = self._argv[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                env={**os.environ, **self._environment, "KUBERNETES_EXEC_INFO": asked},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise AccessError(f"cannot run {name} for a token: {error.strerror}") from error
        try:
            out, err = await asyncio.wait_for(process.communicate(), _COMMAND_SECONDS)
        except TimeoutError as error:
            process.kill()
            await process.wait()
            raise AccessError(f"{name} gave no token within {_COMMAND_SECONDS:.0f} s") from error
        if process.returncode:
            last = err.decode(errors="replace").strip().rpartition("\n")[2]
            raise AccessError(f"{name} gave no token and ended with {process.returncode}: {last}")
        try:
            status = msgspec.json.decode(out, type=_ExecCredential).status
        except (ValueError, RecursionError) as error:
            raise AccessError(f"{name} printed no ExecCredential: {error}") from error
        if not status.token:
            raise AccessError(f"{name} printed an ExecCredential without a token")
        return status


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach one API server as one user."""

    server: str
    """Its address, such as https://10.0.0.1:6443, with no slash at the end."""
    tls: ssl.SSLContext | None = None
    """Whom to trust and which certificate to show; none for plain HTTP."""
    token: Token | None = None
    """The bearer token, if the user has one."""
    server_name: str | None = None
    """The name the server's certificate is for, where that is not the address."""
    namespace: str = "default"
    """The namespace we run in, or the one the kubeconfig names."""


def read_in_cluster(
    folder: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] | None = None
) -> Access:
    """The service account of the pod we run in."""
    env = os.environ if environment is None else environment
    host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise AccessError("not in a cluster: KUBERNETES_SERVICE_HOST is not set; pass --kubeconfig")
    authority = folder / "ca.crt"
    try:
        tls = ssl.create_default_context(cafile=str(authority))
    except OSError as error:
        raise AccessError(f"cannot read {authority}: {error.strerror}") from error
    spot = folder / "namespace"
    namespace = spot.read_text().strip() if spot.exists() else "default"
    shown = f"[{host}]" if ":" in host else host
    return Access(f"https://{shown}:{port}", tls, FileToken(folder / "token"), namespace=namespace)
