"""The messages of the kubelet's DRA plugin API (v1 and v1beta1), health and plugin registration.

v1beta1 has the same numbers, without the share id of a device.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from slicewise.kubelet.codec import many, messages, number, one, text, texts, truth

REGISTRATION: Final = "pluginregistration.Registration"
DRA_V1: Final = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
DRA_V1BETA1: Final = "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"
HEALTH: Final = "v1alpha1.DRAResourceHealth"
PLUGIN_TYPE: Final = "DRAPlugin"
# The kubelet takes the first that it knows; these are not the names of the services.
VERSIONS: Final = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth")
HEALTHY: Final = 1
UNHEALTHY: Final = 2


@dataclass(frozen=True, slots=True)
class PluginInfo:
    type: str = text(1)
    name: str = text(2)
    endpoint: str = text(3)
    versions: tuple[str, ...] = texts(4)


@dataclass(frozen=True, slots=True)
class RegistrationStatus:
    registered: bool = truth(1)
    error: str = text(2)


@dataclass(frozen=True, slots=True)
class ClaimRef:
    namespace: str = text(1)
    uid: str = text(2)
    name: str = text(3)


@dataclass(frozen=True, slots=True)
class ClaimsRequest:
    """The claims to prepare, or to unprepare."""

    claims: tuple[ClaimRef, ...] = many(1, ClaimRef)


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    requests: tuple[str, ...] = texts(1)
    pool: str = text(2)
    device: str = text(3)
    cdi: tuple[str, ...] = texts(4)
    share: str = text(5)


@dataclass(frozen=True, slots=True)
class PrepareResponse:
    """What one claim brings, or why it cannot be prepared."""

    devices: tuple[PreparedDevice, ...] = many(1, PreparedDevice)
    error: str = text(2)


@dataclass(frozen=True, slots=True)
class PrepareResponses:
    claims: Mapping[str, PrepareResponse] = messages(1, PrepareResponse)


@dataclass(frozen=True, slots=True)
class UnprepareResponse:
    error: str = text(1)


@dataclass(frozen=True, slots=True)
class UnprepareResponses:
    claims: Mapping[str, UnprepareResponse] = messages(1, UnprepareResponse)


@dataclass(frozen=True, slots=True)
class DeviceIdentifier:
    pool: str = text(1)
    device: str = text(2)


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    device: DeviceIdentifier | None = one(1, DeviceIdentifier)
    health: int = number(2)
    updated: int = number(3)
    timeout_seconds: int = number(4)
    message: str = text(5)


@dataclass(frozen=True, slots=True)
class HealthResponse:
    """Every device with its health."""

    devices: tuple[DeviceHealth, ...] = many(1, DeviceHealth)
