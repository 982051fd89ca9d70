"""Who answers `why` and `what-if`: an extender at an address, behind a Service, or this process.

Without an extender to ask, its state and handlers are built here from the API server: the same
code on the same cluster, minus what a running extender has decided and not yet written.
"""

import asyncio
import contextlib
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from slicewise.dialects import QuotaLabels
from slicewise.explain.candidates import LeftOut, name_short_nodes
from slicewise.extender.handlers import Extender
from slicewise.extender.run import open_extender
from slicewise.kube.client import Call, Client
from slicewise.kube.errors import RefusedError
from slicewise.model import SlicewiseError
from slicewise.state.defrag.defrag_view import DefragReader
from slicewise.state.settings import choose_settings

ExtenderCall = Callable[[str, Any], Awaitable[dict[str, Any]]]
"""Posts a body to a path of the extender; raises NoAnswerError when there is no answer."""
_SYNC_SECONDS: Final = 120.0
# No scheduler waits for answers while this process places pods for itself.
_MAX_PODS: Final = 10_000


class NoAnswerError(SlicewiseError):
    """What was asked cannot be told."""


@dataclass(frozen=True, slots=True)
class ExtenderTarget:
    """Which extender to ask; without an address or Service, this process answers."""

    url: str | None = None
    ca: Path | None = None
    """PEM authority that its certificate must be from."""
    cert: Path | None = None
    """PEM client certificate and key to show it."""
    service: str | None = None
    """Namespace, name and port of the Service, as `namespace/name:port`."""
    policy: str = "default"
    """The placement policy where this process answers."""
    labels: QuotaLabels = field(default_factory=QuotaLabels)
    """The labels of nodes that the quota's models and pools are told by, where it does."""
    warn: Callable[[str], None] = lambda _: None
    """Hears of what could not be looked at."""


def fetch(
    target: ExtenderTarget, path: str, query: Mapping[str, str] | None = None, body: Any = None
) -> dict[str, Any]:
    """What the extender at the target's address answers."""
    words = f"?{urlencode(query)}" if query else ""
    url = f"{(target.url or '').rstrip('/')}{path}{words}"
    data = None if body is None else json.dumps(body).encode()
    context = None
    if url.startswith("https:"):
        context = ssl.create_default_context(cafile=None if target.ca is None else str(target.ca))
        if target.cert is not None:
            context.load_cert_chain(target.cert)
    try:
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30, context=context) as response:
            answer: dict[str, Any] = json.load(response)
    except urllib.error.HTTPError as error:
        raise NoAnswerError(_read_error(error.read(), error.code)) from error
    except (OSError, ValueError) as error:
        raise NoAnswerError(f"cannot ask {url}: {error}; pass --url") from error
    return answer


@contextlib.asynccontextmanager
async def open_call(client: Client, target: ExtenderTarget) -> AsyncIterator[ExtenderCall]:
    """A call of the extender behind the Service, or of one built in this process."""
    if target.service:
        yield _ask_service(client, target.service)
        return
    async with open_here(client, target) as extender:
        yield _ask_here(extender)


@contextlib.asynccontextmanager
async def open_here(client: Client, target: ExtenderTarget) -> AsyncIterator[Extender]:
    """An extender of this process, on the cluster as it is and becomes."""
    settings = await choose_settings(client, target.policy, target.warn)
    settings = replace(settings, quota_labels=target.labels)
    async with contextlib.AsyncExitStack() as stack:
        try:
            opened = open_extender(client, settings, _SYNC_SECONDS)
            extender = await stack.enter_async_context(opened)
        except TimeoutError as error:
            raise NoAnswerError(f"the cluster was not read within {_SYNC_SECONDS:.0f} s") from error
        yield extender


@contextlib.asynccontextmanager
async def open_defrag(client: Client, target: ExtenderTarget) -> AsyncIterator[DefragReader]:
    """A ledger of this process, kept current, to plan moves on."""
    async with open_here(client, target) as extender:
        yield DefragReader(client, extender.decisions.queries)


async def ask_running(client: Client, target: ExtenderTarget, path: str, body: Any) -> Any:
    """What the extender answers that schedulers ask, at its address or behind its Service."""
    if target.service:
        return await _ask_service(client, target.service)(path, body)
    return await asyncio.to_thread(fetch, target, path, None, body)


def _ask_here(extender: Extender) -> ExtenderCall:
    async def ask(path: str, body: Any) -> dict[str, Any]:
        data = json.dumps(body).encode()
        if path == "/what-if":
            response = await extender.what_if(data, _MAX_PODS)
        else:
            response = await extender.explain(data, {})
        if response.status != 200:
            raise NoAnswerError(_read_error(bytes(response.body), response.status))
        answer: dict[str, Any] = json.loads(response.body)
        return answer

    return ask


def _ask_service(client: Client, service: str) -> ExtenderCall:
    namespace, _, name = service.rpartition("/")
    if not name:
        raise NoAnswerError(f"--service={service!r}: expected namespace/name:port")
    home = f"/api/v1/namespaces/{namespace or 'kube-system'}/services/{name}/proxy"

    async def ask(path: str, body: Any) -> dict[str, Any]:
        try:
            content = await client.send(Call("create", "services/proxy", home + path), body)
        except RefusedError as error:
            # The extender's own errors come through as they are, and are no Status.
            raise NoAnswerError(_read_error(error.message.encode(), error.code)) from error
        answer: dict[str, Any] = json.loads(content)
        return answer

    return ask


async def add_suggestions(
    ask: ExtenderCall, pod: Mapping[str, Any], told: dict[str, Any], left_out: LeftOut
) -> None:
    """Add what would fit on nodes whose sums fell short, where no other node has a suggestion."""
    short = name_short_nodes(left_out)
    if not short or told.get("best") or told.get("fits") or told.get("smallestChange"):
        return
    more = await ask("/explain", {"Pod": pod, "NodeNames": short})
    told["nodes"] = [*told["nodes"], *(node for node in more["nodes"] if not node["fits"])]
    if "smallestChange" in more:
        told["smallestChange"] = more["smallestChange"]


def _read_error(content: bytes, code: int) -> str:
    try:
        return str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        text = content.decode(errors="replace").strip()
        return f"the extender answered {code}{f': {text}' if text else ''}"
