"""How an agent trusts the metrics API where no file is set: by the authority in its Secret."""

import ssl
from pathlib import Path

from slicewise.kube.errors import KubeError
from slicewise.kube.secrets import SecretClient
from slicewise.reports import FileCredentials, ReportError, trust

_KEY = "ca-cert.pem"


class SecretCredentials:
    """The server's authority from its Secret, read for every connection, and a token's file."""

    def __init__(self, secrets: SecretClient, token: Path) -> None:
        self._secrets = secrets
        self._token = FileCredentials(token, token)

    async def tls(self) -> ssl.SSLContext:
        """A context that trusts the authority as it is now."""
        try:
            found = await self._secrets.read()
        except KubeError as error:
            words = "cannot read the server's Secret; pass --report-ca"
            raise ReportError(f"{words}: {error}") from error
        if found is None or _KEY not in found.data:
            raise ReportError(f"the server's Secret has no {_KEY} yet")
        return trust(found.data[_KEY].decode(errors="replace"))

    async def token(self) -> str | None:
        """The token as its file has it now."""
        return await self._token.token()
