"""Asking running processes about themselves: the nodes' agents, and an extender at its address."""

import asyncio
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from slicewise.diagnose.agents import AgentAbout, ExtenderAbout
from slicewise.kube.client import Client
from slicewise.kube.errors import KubeError, RefusedError
from slicewise.kube.reads import read_page
from slicewise.model import NodeDetails, SlicewiseError

_SECONDS: Final = 5.0
# An audit that finds something looks twice, and the kubelet may take its time.
_AUDIT_SECONDS: Final = 60.0
_AUDIT_KEYS: Final = {"node", "verdict", "findings", "gaps"}
_AT_ONCE: Final = 32
_FORBIDDEN: Final = (401, 403)
_MISSING: Final = 404


class ProbeError(SlicewiseError):
    """A process that was asked about itself does not answer as expected."""


async def ask_agents(
    client: Client, nodes: Sequence[NodeDetails], port: int
) -> list[AgentAbout | None]:
    """What each node's agent says of itself; raises RefusedError when asking is forbidden."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def ask(node: NodeDetails) -> AgentAbout | Exception:
        async with turns:
            try:
                page = await read_page(client, node.name, port, "/agent", seconds=_SECONDS)
                return msgspec.json.decode(page, type=AgentAbout)
            except (KubeError, ValueError, RecursionError) as error:
                return error

    answers = await asyncio.gather(*(ask(node) for node in nodes))
    for each in answers:
        if isinstance(each, RefusedError) and each.code in _FORBIDDEN:
            raise each
    return [each if isinstance(each, AgentAbout) else None for each in answers]


async def ask_extender(url: str) -> ExtenderAbout:
    """How the extender at this address answers."""
    return await asyncio.to_thread(_ask_extender, url.rstrip("/"))


def _ask_extender(url: str) -> ExtenderAbout:
    # Only whether it answers is asked here; its certificate is read below.
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(f"{url}/version", timeout=_SECONDS, context=trust) as answer:
            version = answer.read(200).decode(errors="replace").strip()
        about = ExtenderAbout(url, version, _ask_ready(url, trust))
    except (OSError, ValueError) as error:
        return ExtenderAbout(url, error=str(error))
    parts = urlsplit(url)
    if parts.scheme != "https":
        return about
    try:
        pem = ssl.get_server_certificate((parts.hostname or "", parts.port or 443))
    except OSError as error:
        return replace(about, certificate_error=str(error))
    return replace(about, certificate=pem.encode())


def _ask_ready(url: str, trust: ssl.SSLContext) -> int:
    code = 0
    # Those of earlier versions have no /leadz, and are ready only where they lead.
    for path in ("/leadz", "/readyz"):
        try:
            with urllib.request.urlopen(url + path, timeout=_SECONDS, context=trust):
                return 200
        except urllib.error.HTTPError as error:
            error.close()
            code = error.code
        if code != _MISSING:
            break
    return code


def fetch_audit(url: str) -> dict[str, Any]:
    """The page on which the agent at this address compares allocations with what is held."""
    page = f"{url.rstrip('/')}/audit"
    try:
        with urllib.request.urlopen(page, timeout=_AUDIT_SECONDS) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        error.close()
        raise ProbeError(f"{page} answered {error.code}") from error
    except (OSError, ValueError) as error:
        raise ProbeError(f"cannot ask {page}: {error}") from error
    if not isinstance(answer, dict) or not answer.keys() >= _AUDIT_KEYS:
        raise ProbeError(f"{page} is not the page of an agent")
    return answer
