"""The service's life: certificates, authorities, listener and the loops beside them.

It listens as soon as it has a certificate and knows whom to believe, and stops by ending every
stream first.
"""

import asyncio
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import structlog

from slicewise.dialects import QuotaLabels
from slicewise.httpd import Handler, Server, ServerSettings, Tls
from slicewise.kube import sources
from slicewise.kube.access_reviews import AccessReviews
from slicewise.kube.background_tasks import BackgroundTasks
from slicewise.kube.client import Client
from slicewise.kube.configmaps import ConfigMapClient
from slicewise.kube.errors import RefusedError
from slicewise.kube.objects import ConfigMap
from slicewise.kube.secrets import SecretClient
from slicewise.kube.serving.certificate_manager import (
    CertificateManager,
    CertificateSettings,
    keep_registered,
    write_private,
)
from slicewise.kube.serving.registration import trust_authority
from slicewise.kube.watch import Informer, Seen, WatchEvent, WatchMonitor
from slicewise.metricsapi.agents import AgentRules
from slicewise.metricsapi.api_versions import API_VERSIONS, FIRST, OWN
from slicewise.metricsapi.auth import NAME, NAMESPACE, Authorities, RequestAuth, read_authorities
from slicewise.metricsapi.broadcaster import Broadcaster
from slicewise.metricsapi.custom_resources import CustomResources
from slicewise.metricsapi.registry import SILENCE_SECONDS, NodeRegistry
from slicewise.metricsapi.routes import MetricsRoutes
from slicewise.state.cluster_state import ClusterState

_log = structlog.get_logger(__name__)
MANAGER: Final = "nvidia-gpu-scheduler"
AUTHORITY_KEY: Final = "ca.crt"
_SWEEP_SECONDS: Final = 0.1
# A loop that was held up has heartbeats to read before it may call any agent silent.
_HELD_UP_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsApiSettings:
    kubeconfig: Path | None = None
    """Kubeconfig of the API server; none looks where kubectl and pods do."""
    policy: str = "default"
    """The scheduler's policy for pods that name none."""
    quota_labels: QuotaLabels = field(default_factory=QuotaLabels)
    """The labels of nodes by which the scheduler's quota names models and pools."""
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
    authority_configmap: tuple[str, str] | None = None
    """Namespace and name of the ConfigMap in which agents find the authority; none writes none."""
    rules: AgentRules = field(default_factory=AgentRules)
    """Whom agents have to be."""
    silence_seconds: float = SILENCE_SECONDS
    """After how long a silent node is unhealthy."""
    overlap_seconds: float = 30.0
    """How long a new authority is known before it is used."""
    custom_resources: bool = False
    """Whether nvidia-gpu-scheduler v0.2.0's custom resources and Leases are read and kept."""
    identity: str = field(default_factory=socket.gethostname)
    """Which replica this is."""
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
        self.watches = WatchMonitor()
        self.background = BackgroundTasks()
        """What runs beside the listener; liveness fails when any of it ends."""
        self._scheduler_state: ClusterState | None = None
        self._custom: CustomResources | None = None
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

    def serve_scheduler(self, handler: Handler, state: ClusterState) -> None:
        self._scheduler_state = state
        self._api.serve_scheduler(handler)

    async def start(self) -> None:
        """Listen, once there is a certificate and the front proxy is known."""
        configmap = sources.configmaps(NAMESPACE, NAME)
        authorities = Informer(self._client, configmap, self._take_authorities)
        self._follow(authorities)
        self.background.run("watch monitor", self.watches.run())
        await self._believed.wait()
        tls = self.settings.listen.tls
        if tls is None:
            await self.certificate_manager.insist(self._client.sleep)
            tls = Tls(self.certificate_manager.file, self.certificate_manager.file)
            secret = Informer(self._client, self._secrets.source(), self.certificate_manager.take)
            self._follow(secret)
            self.background.run("certificates", self.certificate_manager.run())
        elif self.settings.authority is not None:
            work = keep_registered(self._register, self.settings.authority, self._client.sleep)
            self.background.run("registration", work)
        listen = replace(self.settings.listen, tls=replace(tls, client_ca=self._clients))
        self.server = Server(self._api.handle, listen, admit=self._api.admit)
        await self.server.start()
        assert self.server.app is not None
        self.server.app.failure = self._find_failure
        nodes = Informer(self._client, sources.node_names(), self._take_nodes)
        self._follow(nodes)
        self.background.run("sweep", self._sweep())
        if self.settings.custom_resources:
            self._keep_custom_resources()

    async def stop(self) -> None:
        """End streams and connections, then everything else."""
        if self.server is not None:
            await self.server.stop()
        await self.background.stop()
        if self._custom is not None:
            await self._custom.election.release()
        if self._holder is not None:
            self._holder.cleanup()

    def _keep_custom_resources(self) -> None:
        settings = self.settings
        self._custom = custom = CustomResources(
            self._client, settings.namespace, self.registry, settings.identity
        )
        for informer in custom.informers:
            self._follow(informer)
        self.background.run("election", custom.election.run(lambda _: None))
        self.background.run("health of GpuNodes", custom.writer.run())

    @property
    def _clients(self) -> Path:
        return self._folder / "clients.pem"

    def _find_folder(self) -> Path:
        if self.settings.folder is not None:
            return self.settings.folder
        self._holder = tempfile.TemporaryDirectory(prefix="slicewise-")
        return Path(self._holder.name)

    def _follow(self, informer: Informer[Any, Any]) -> None:
        self.watches.add(informer)
        self.background.run(f"watch of {informer.resource}", informer.run())

    def _find_failure(self) -> str | None:
        state = self._scheduler_state
        return self.background.failure or (None if state is None else state.failure)

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

    async def _register(self, authorities: bytes) -> None:
        """Have the API server know every group by these authorities, where they are registered."""
        if self.settings.authority_configmap is not None:
            await self._publish(self.settings.authority_configmap, authorities)
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

    async def _publish(self, place: tuple[str, str], authorities: bytes) -> None:
        """Have the authorities in the ConfigMap from which agents know us."""
        shared = ConfigMapClient(self._client, *place, manager=MANAGER)
        data = {AUTHORITY_KEY: authorities.decode()}
        while True:
            found = await shared.read()
            if found is not None and found[0].data.get(AUTHORITY_KEY) == data[AUTHORITY_KEY]:
                return
            if await shared.write(data, None if found is None else found[1]):
                _log.info("authority published", configmap="/".join(place))
                return

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
