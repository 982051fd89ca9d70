"""The webhook put together: client, certificates, registration and listener."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from slicewise import __version__
from slicewise.admission.decisions import AdmissionJudge
from slicewise.admission.policies import MUTATING, VALIDATING, PolicySettings
from slicewise.admission.webhook import AdmissionWebhook
from slicewise.httpd import Server, ServerSettings, Tls
from slicewise.kube.access_reviews import AccessReviews
from slicewise.kube.background_tasks import BackgroundTasks
from slicewise.kube.client import Client
from slicewise.kube.credentials import Access
from slicewise.kube.errors import RefusedError
from slicewise.kube.secrets import SecretClient
from slicewise.kube.serving.certificate_manager import (
    CertificateManager,
    CertificateSettings,
    keep_registered,
)
from slicewise.kube.serving.registration import WEBHOOK_KINDS, trust_webhooks
from slicewise.kube.watch import Informer

COMPONENT: Final = "slicewise-webhook"
# Configurations may come after us, and an upgrade may write them again.
_CHECK_SECONDS: Final = 10.0
_CONFIGURATIONS: Final = (
    *((WEBHOOK_KINDS[0], short) for short in MUTATING),
    *((WEBHOOK_KINDS[1], short) for short in VALIDATING),
)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    access: Access
    """How the API server is reached."""
    name: str = COMPONENT
    """Name of the Service in front, and of the Secret with the certificates."""
    namespace: str = "kube-system"
    """Namespace of both."""
    policies: PolicySettings = field(default_factory=PolicySettings)
    """What differs in the policies from cluster to cluster."""
    listen: ServerSettings = field(default_factory=ServerSettings)
    """Address and limits; its certificates count only if they are not made here."""
    authority: Path | None = None
    """PEM authority of certificates that are not made here, for the registration."""


async def run_webhook(
    settings: WebhookSettings,
    stop: asyncio.Event,
    *,
    started: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until told to stop; `started` hears the address once connections are accepted."""
    background = BackgroundTasks()
    with tempfile.TemporaryDirectory(prefix="slicewise-") as folder:
        async with Client(settings.access, agent=f"{COMPONENT}/{__version__}") as client:
            try:
                tls = await _prepare(client, settings, Path(folder), background)
                server = _build_server(client, settings, tls)
                await server.start()
                assert server.app is not None
                server.app.failure = lambda: background.failure
                started(server.url)
                try:
                    await stop.wait()
                finally:
                    await server.stop()
            finally:
                await background.stop()


async def _prepare(
    client: Client, settings: WebhookSettings, folder: Path, background: BackgroundTasks
) -> Tls:
    """The files to listen with, which the API server hears of and goes on to believe."""

    async def register(authorities: bytes) -> None:
        await _register(client, settings.policies.name, authorities)

    given = settings.listen.tls
    if given is not None:
        if settings.authority is not None:
            work = keep_registered(register, settings.authority, client.sleep)
            background.run("registration", work)
        return given
    store = SecretClient(client, settings.namespace, settings.name, manager=COMPONENT)
    certificates = CertificateSettings(
        host=f"{settings.name}.{settings.namespace}.svc",
        folder=folder,
        check_seconds=_CHECK_SECONDS,
    )
    manager = CertificateManager(store, register, certificates)
    await manager.insist(client.sleep)
    background.run("watch of secrets", Informer(client, store.source(), manager.take).run())
    background.run("certificates", manager.run())
    return Tls(manager.file, manager.file)


async def _register(client: Client, prefix: str, authorities: bytes) -> None:
    """Have the API server know us in every configuration that there is."""
    for resource, short in _CONFIGURATIONS:
        name = f"{prefix}-{short}"
        try:
            if await trust_webhooks(client, resource, name, authorities, manager=COMPONENT):
                _log.info("registered", configuration=name)
        except RefusedError as error:
            # Only those that are wanted were made.
            if not error.missing:
                raise


def _build_server(client: Client, settings: WebhookSettings, tls: Tls) -> Server:
    judge = AdmissionJudge(settings.policies)
    webhook = AdmissionWebhook(judge, AccessReviews(client), settings.policies.actions)
    listen = replace(settings.listen, tls=tls)
    return Server(webhook.router.handle, listen, admit=webhook.router.admit)
