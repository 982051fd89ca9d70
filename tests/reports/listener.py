"""A server that takes every agent's connection and remembers what it was told."""

import asyncio
import ssl
from contextlib import asynccontextmanager

from slicewise.httpd import HttpResponse, Server, ServerSettings, Tls, Upgrade
from slicewise.reports import PROTOCOL, ReportReceiver, apply_delta


class Memory:
    """A sink that keeps the node's state and counts what it heard."""

    def __init__(self):
        self.report = None
        self.beats = 0
        self.changes = []
        self.ended = asyncio.Event()
        self.heard = asyncio.Condition()

    def heartbeat(self):
        self.beats += 1

    def replace(self, report):
        self.report = report

    def apply(self, change):
        self.changes.append(change)
        self.report = apply_delta(self.report, change)

    def end(self):
        self.ended.set()


class Listener:
    """One port that agents may speak to."""

    def __init__(self, folder=None, authority=None):
        tls = None
        if authority is not None:
            leaf = authority.issue_cert("localhost")
            leaf.private_key_pem.write_to_path(folder / "key.pem")
            leaf.cert_chain_pems[0].write_to_path(folder / "cert.pem")
            tls = Tls(folder / "cert.pem", folder / "key.pem")
        self.memories = []
        self.receivers = []
        self.requests = []
        self.refusal = None
        self._server = Server(self.answer, ServerSettings(tls=tls))
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://localhost:{self._server.port}"

    async def answer(self, request):
        self.requests.append(request)
        if self.refusal is not None:
            return HttpResponse(self.refusal, b"not you\n")
        return Upgrade(PROTOCOL, lambda: self._listen(request.query["node"]))

    def _listen(self, node):
        self.memories.append(Memory())
        self.receivers.append(ReportReceiver(node, self.memories[-1]))
        return self.receivers[-1]

    async def __aenter__(self):
        await self._server.start()
        return self

    async def __aexit__(self, *_):
        await self._server.stop()


class Plain:
    """An agent that shows a token and, unless told, trusts nobody."""

    def __init__(self, tls: ssl.SSLContext | None = None):
        self._tls = tls

    async def tls(self):
        return self._tls

    async def token(self):
        return "secret"


@asynccontextmanager
async def reporting(reporter):
    """The reporter at work, and at rest afterwards."""
    task = asyncio.create_task(reporter.run())
    try:
        yield reporter
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds, seconds=20.0):
    """Returns once the condition holds."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)
