"""The routes of agents: one connection each for ours, separate calls for the original's."""

import random
from asyncio import get_running_loop
from dataclasses import dataclass
from typing import Final

from slicewise.httpd import Answer, HttpRequest, HttpResponse, Upgrade
from slicewise.kube.access_reviews import ResourceAttributes, User
from slicewise.metricsapi import legacy
from slicewise.metricsapi.api_versions import FIRST
from slicewise.metricsapi.auth import NODE_CLAIM, RequestAuth, find_node
from slicewise.metricsapi.registry import NodeRegistry
from slicewise.metricsapi.status import refuse
from slicewise.reports import PROTOCOL, ReportReceiver

HEALTH: Final = "/health"
INVENTORY: Final = "/hostgpuinfo"
HOLDINGS: Final = "/podresources"
_OK: Final = HttpResponse(200, b"", content_type="text/plain; charset=utf-8")
# Who may report at all; which node they speak for is decided by their credentials.
_REPORT: Final = ResourceAttributes(
    verb="create", group=FIRST.group, version=FIRST.version, resource="reports"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRules:
    admit_unknown: bool = False
    """Whether the original's agents, which show no credentials, are heard."""
    line_seconds: float = 1800.0
    """How long a connection lives at most; then its agent shows its credentials again."""


class AgentRoutes:
    """Takes what agents say, each for its own node."""

    def __init__(self, registry: NodeRegistry, auth: RequestAuth, rules: AgentRules) -> None:
        self._registry = registry
        self._auth = auth
        self._rules = rules

    async def connect(self, request: HttpRequest) -> Answer:
        if request.headers.get("upgrade", "").lower() != PROTOCOL:
            return HttpResponse(426, b"", headers={"upgrade": PROTOCOL, "connection": "Upgrade"})
        node = request.query.get("node", "")
        refusal = await self._refuse_for(request, node)
        return refusal or Upgrade(PROTOCOL, lambda: self._open(node))

    async def heartbeat(self, request: HttpRequest) -> Answer:
        """The heartbeat of an original agent; without a node it is a probe's question."""
        node = request.query.get("node", "")
        if node and await self._refuse_for(request, node, old=True) is None:
            self._registry.heartbeat(node)
        return _OK

    async def take_inventory(self, request: HttpRequest) -> Answer:
        """The GPUs of a node, from the original's agent."""
        message = legacy.decode_message(request.body, legacy.Inventory)
        if refusal := await self._refuse_for(request, message.device_node, old=True):
            return refusal
        if message.device_node:
            legacy.take_inventory(self._registry, message)
        return _OK

    async def take_holdings(self, request: HttpRequest) -> Answer:
        """The pods of a node, from the original's agent."""
        message = legacy.decode_message(request.body, legacy.Holdings)
        if refusal := await self._refuse_for(request, message.node, old=True):
            return refusal
        if message.node:
            legacy.take_holdings(self._registry, message)
        return _OK

    async def refuse(self, head: HttpRequest) -> HttpResponse | None:
        """Why this caller may not report at all, as an original agent at least; None if it may."""
        user = await self._auth.identify(head)
        return await self._judge(user, old=True)

    async def _refuse_for(
        self, request: HttpRequest, node: str, *, old: bool = False
    ) -> HttpResponse | None:
        """Why this caller may not speak for the node; None when it may."""
        user = await self._auth.identify(request)
        refusal = await self._judge(user, old=old)
        if refusal is not None or user is None:
            return refusal
        own = find_node(user)
        if own is None:
            return refuse(403, f"the credentials of {user.name} name no node: {NODE_CLAIM}")
        if own != node:
            return refuse(403, f"{user.name} does not speak for node {node!r}")
        return None

    async def _judge(self, user: User | None, *, old: bool) -> HttpResponse | None:
        if user is None:
            if old and self._rules.admit_unknown:
                return None
            return refuse(401, "agents show a token or a client certificate")
        # Rights are the account's, whatever pod shows its token.
        account = User(user.name, groups=user.groups)
        if not await self._auth.permits(account, _REPORT):
            return refuse(403, f"{user.name} may not create reports in {_REPORT.group}")
        return None

    def _open(self, node: str) -> ReportReceiver:
        session = self._registry.open(node)
        receiver = ReportReceiver(node, session)
        session.keep(receiver.close)
        # A revoked account is heard no longer than this; jitter spreads the new connections.
        seconds = self._rules.line_seconds * random.uniform(0.8, 1.0)
        get_running_loop().call_later(seconds, receiver.close)
        return receiver
