"""The service's life: certificates, authorities, listener and the loops beside them.

It listens as soon as it has a certificate and knows whom to believe, and stops by ending every
stream first.
"""

import asyncio
import tempfile
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import structlog

from slicewise.httpd import Handler, Server, ServerSettings, Tls
from slicewise.kube import sources
from slicewise.kube.access_reviews import AccessReviews
from slicewise.kube.client import Client
from slicewise.kube.errors import KubeError, RefusedError
from slicewise.kube.objects import ConfigMap
from slicewise.kube.secrets import SecretClient, trust_authority
from slicewise.kube.watch import Informer, Seen, WatchEvent
from slicewise.metricsapi.agents import AgentRules
from slicewise.metricsapi.api_versions import API_VERSIONS, FIRST, OWN
from slicewise.metricsapi.auth import NAME, NAMESPACE, Authorities, RequestAuth, read_authorities
from slicewise.metricsapi.broadcaster import Broadcaster
from slicewise.metricsapi.certificate_manager import (
    CertificateManager,
    CertificateSettings,
    write_private,
)
from slicewise.metricsapi.registry import SILENCE_SECONDS, NodeRegistry
from slicewise.metricsapi.routes import MetricsRoutes

_log = structlog.get_logger(__name__)
MANAGER: Final = "nvidia-gpu-scheduler"
_SWEEP_SECONDS: Final = 0.1
# A loop that was held up has heartbeats to read before it may call any agent silent.
_HELD_UP_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsApiSettings:
    kubeconfig: Path | None = None
    """Kubeconfig of the API server; none looks where kubectl and pods do."""
    policy: str = "default"
    """The scheduler's policy for pods that name none."""
    name: str = "nvidia-gpu-scheduler"
    """Name of the Service in front, and of the Secret."""
    namespace: str = "kube-system"
    """Namespace of both."""
    listen: ServerSettings = field(
        default_factory=lambda: ServerSettings(host="0.0.0.0", port=8080)
    )
    """Address and limits; its certificates count only if they are not made here."""
    authority: Path | None = None
    """PEM authority of certificates that are not made here, for the registration."""
    rules: AgentRules = field(default_factory=AgentRules)
    """Whom agents have to be."""
    silence_seconds: float = SILENCE_SECONDS
    """After how long a silent node is unhealthy."""
    overlap_seconds: float = 30.0
    """How long a new authority is known before it is used."""
    folder: Path | None = None
    """Where certificates are put for the listener; none makes a folder."""


class MetricsApiServer:
    """One metrics API behind one listener."""

    def __init__(self, client: Client, settings: MetricsApiSettings | None = None) -> None:
        self.settings = settings = settings or MetricsApiSettings()
        self.broadcaster = Broadcaster()
        self.registry = NodeRegistry(self.broadcaster, silence=settings.silence_seconds)
        self.broadcaster.attach(self.registry)
        self._client = client
        self._secrets = SecretClient(client, settings.namespace, settings.name, manager=MANAGER)
        self._authorities = Authorities()
        self._believed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._holder: tempfile.TemporaryDirectory[str] | None = None
        self._folder = self._find_folder()
        self.server: Server | None = None
        auth = RequestAuth(AccessReviews(client), lambda: self._authorities)
        self._api = MetricsRoutes(
            self.registry, self.broadcaster, auth, settings.rules, namespace=settings.namespace
        )
        certificates = CertificateSettings(
            host=f"{settings.name}.{settings.namespace}.svc",
            folder=self._folder,
            overlap_seconds=settings.overlap_seconds,
        )
        self.certificate_manager = CertificateManager(self._secrets, self._register, certificates)

    @property
    def url(self) -> str:
        assert self.server is not None
        return self.server.url

    def serve_scheduler(self, handler: Handler) -> None:
        self._api.serve_scheduler(handler)

    async def start(self) -> None:
        """Listen, once there is a certificate and the front proxy is known."""
        configmap = sources.configmaps(NAMESPACE, NAME)
        authorities = Informer(self._client, configmap, self._take_authorities)
        self._run("authorities", authorities.run())
        await self._believed.wait()
        tls = self.settings.listen.tls
        if tls is None:
            await self._insist_on_certificate()
            tls = Tls(self.certificate_manager.file, self.certificate_manager.file)
            secret = Informer(self._client, self._secrets.source(), self.certificate_manager.take)
            self._run("secret", secret.run())
            self._run("keeper", self.certificate_manager.run())
        elif self.settings.authority is not None:
            self._run("registration", self._keep_registered(self.settings.authority))
        listen = replace(self.settings.listen, tls=replace(tls, client_ca=self._clients))
        self.server = Server(self._api.handle, listen)
        await self.server.start()
        nodes = Informer(self._client, sources.node_names(), self._take_nodes)
        self._run("nodes", nodes.run())
        self._run("sweep", self._sweep())

    async def stop(self) -> None:
        """End streams and connections, then everything else."""
        if self.server is not None:
            await self.server.stop()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._holder is not None:
            self._holder.cleanup()

    @property
    def _clients(self) -> Path:
        return self._folder / "clients.pem"

    def _find_folder(self) -> Path:
        if self.settings.folder is not None:
            return self.settings.folder
        self._holder = tempfile.TemporaryDirectory(prefix="slicewise-")
        return Path(self._holder.name)

    def _run(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"metrics-api-{what}")
        task.add_done_callback(_notice_end)
        self._tasks.append(task)

    def _take_authorities(self, changes: Sequence[WatchEvent[ConfigMap]]) -> None:
        for change in changes:
            if isinstance(change, Seen):
                found = read_authorities(change.value.data)
                if not found.bundle:
                    _log.warning("no authorities", configmap=f"{NAMESPACE}/{NAME}")
                    continue
                self._authorities = found
                write_private(self._clients, found.bundle.encode())
                self._believed.set()

    async def _insist_on_certificate(self) -> None:
        while True:
            try:
                return await self.certificate_manager.begin()
            except KubeError as error:
                _log.warning("no certificate yet", error=str(error))
                await self._client.sleep(1.0)

    async def _keep_registered(self, authority: Path) -> None:
        while True:
            try:
                await self._register(authority.read_bytes())
            except (KubeError, OSError) as error:
                _log.warning("not registered", error=str(error))
            await self._client.sleep(60.0)

    async def _register(self, authorities: bytes) -> None:
        """Have the API server know every group by these authorities, where they are registered."""
        for api_version in API_VERSIONS:
            name = f"{api_version.version}.{api_version.group}"
            try:
                if await trust_authority(self._client, name, authorities, manager=MANAGER):
                    _log.info("registered", apiservice=name)
            except RefusedError as error:
                # The other groups are registered only where they are wanted, and installations
                # from before our own group may not have the right to register it.
                missing = (403, 404) if api_version is OWN else (404,)
                if api_version is FIRST or error.code not in missing:
                    raise

    def _take_nodes(self, changes: Sequence[WatchEvent[str]]) -> None:
        for change in changes:
            if isinstance(change, Seen):
                self.registry.on_node(change.value)
            else:
                self.registry.on_node_deleted(change.key)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(_SWEEP_SECONDS)
            if loop.time() - began < _SWEEP_SECONDS + _HELD_UP_SECONDS:
                self.registry.sweep()


def _notice_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.critical("service broken", task=task.get_name(), exc_info=task.exception())
