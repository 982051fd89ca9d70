import asyncio

import pytest

from reports.listener import Listener, reporting
from reports.values import node
from slicewise.kube.errors import RefusedError
from slicewise.kube.secrets import Secret
from slicewise.nodeagent.usage.reporting import SecretCredentials
from slicewise.reports import Reporter, ReportError


class Vault:
    def __init__(self, found):
        self.found = found

    async def read(self):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (None, "no ca-cert.pem"),
        (Secret({}), "no ca-cert.pem"),
        (RefusedError(403, "Forbidden", "no"), "pass --report-ca"),
        (Secret({"ca-cert.pem": b"nonsense"}), "authorities cannot be read"),
    ],
)
def test_agent_says_why_it_cannot_know_the_server(found, words, tmp_path):
    credentials = SecretCredentials(Vault(found), tmp_path / "token")

    with pytest.raises(ReportError, match=words):
        asyncio.run(credentials.tls())


def test_agent_shows_the_token_in_its_file(tmp_path):
    (tmp_path / "token").write_text("secret\n")

    async def scene():
        async with Listener() as listener:
            credentials = SecretCredentials(Vault(None), tmp_path / "token")
            reporter = Reporter(listener.url, credentials)
            reporter.update(node())
            async with reporting(reporter):
                await asyncio.wait_for(reporter.connected.wait(), 20)
            return listener.requests[0].headers["authorization"]

    assert asyncio.run(scene()) == "Bearer secret"
