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
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import click

from slicewise.cli.cluster_access import FILE, CannotTell, warn
from slicewise.cli.options import quota_label_options
from slicewise.dialects import QuotaLabels
from slicewise.explain.candidates import LeftOut, name_short_nodes
from slicewise.extender.handlers import Extender
from slicewise.extender.run import open_extender
from slicewise.kube.client import Call, Client
from slicewise.kube.errors import RefusedError
from slicewise.model import SlicewiseError
from slicewise.placement import read_policy
from slicewise.state.settings import choose_settings

F = TypeVar("F", bound=Callable[..., Any])
ExtenderCall = Callable[[str, Any], Awaitable[dict[str, Any]]]
"""Posts a body to a path of the extender; raises CannotTell when there is no answer."""
URL: Final = "SLICEWISE_URL"
_SYNC_SECONDS: Final = 120.0
# No scheduler waits for answers while this process places pods for itself.
_MAX_PODS: Final = 10_000


@dataclass(frozen=True, slots=True)
class ExtenderTarget:
    """Which extender to ask; without an address or Service, this process answers."""

    url: str | None = None
    ca: Path | None = None
    cert: Path | None = None
    service: str | None = None
    policy: str = "default"
    labels: QuotaLabels = field(default_factory=QuotaLabels)

    def __post_init__(self) -> None:
        if self.url and self.service:
            raise click.UsageError("--url and --service are two ways to ask: pass one")
        try:
            read_policy(self.policy)
        except SlicewiseError as error:
            raise click.BadParameter(str(error), param_hint="--policy") from error


def target_options(command: F) -> F:
    flags = (
        click.option("--url", envvar=URL, help=f"Ask the extender at this address [env {URL}]."),
        click.option(
            "--ca", type=FILE, help="With --url: PEM authority that its certificate must be from."
        ),
        click.option(
            "--cert", type=FILE, help="With --url: PEM client certificate and key to show it."
        ),
        click.option(
            "--service", help="Ask the extender behind this Service, as namespace/name:port."
        ),
        click.option(
            "--policy",
            default="default",
            show_default=True,
            help="Placement policy to assume where no extender is asked.",
        ),
    )
    command = quota_label_options(environment="SLICEWISE_")(command)
    for flag in reversed(flags):
        command = flag(command)
    return command


def read_target(flags: dict[str, Any]) -> ExtenderTarget:
    """Which extender to ask, taken out of a command's flags."""
    labels = QuotaLabels(flags.pop("model_label") or None, flags.pop("pool_label") or None)
    return ExtenderTarget(
        **{key: flags.pop(key) for key in ("url", "ca", "cert", "service", "policy")},
        labels=labels,
    )


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
        raise CannotTell(_read_error(error.read(), error.code)) from error
    except (OSError, ValueError) as error:
        raise CannotTell(f"cannot ask {url}: {error}; pass --url") from error
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
    settings = await choose_settings(client, target.policy, warn)
    settings = replace(settings, quota_labels=target.labels)
    async with contextlib.AsyncExitStack() as stack:
        try:
            opened = open_extender(client, settings, _SYNC_SECONDS)
            extender = await stack.enter_async_context(opened)
        except TimeoutError as error:
            raise CannotTell(f"the cluster was not read within {_SYNC_SECONDS:.0f} s") from error
        yield extender


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
            raise CannotTell(_read_error(bytes(response.body), response.status))
        answer: dict[str, Any] = json.loads(response.body)
        return answer

    return ask


def _ask_service(client: Client, service: str) -> ExtenderCall:
    namespace, _, name = service.rpartition("/")
    if not name:
        raise CannotTell(f"--service={service!r}: expected namespace/name:port")
    home = f"/api/v1/namespaces/{namespace or 'kube-system'}/services/{name}/proxy"

    async def ask(path: str, body: Any) -> dict[str, Any]:
        try:
            content = await client.send(Call("create", "services/proxy", home + path), body)
        except RefusedError as error:
            # The extender's own errors come through as they are, and are no Status.
            raise CannotTell(_read_error(error.message.encode(), error.code)) from error
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
