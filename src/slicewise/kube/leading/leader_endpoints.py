"""The EndpointSlices that lead a Service to the leader alone.

A Service without a selector has no other endpoints, so whoever asks it reaches the process that
decides. Each slice has the epoch of the leader that wrote it, and a former leader never overwrites
a newer one; it belongs to the leader's pod, so the cluster removes it after the last of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

import msgspec
import structlog

from slicewise.kube.client import Call, Client
from slicewise.kube.errors import KubeError
from slicewise.kube.leading.lease import EPOCH, read_epoch
from slicewise.kube.outcomes import PodName
from slicewise.kube.reads import read_one

_log = structlog.get_logger(__name__)
_RESOURCE: Final = "endpointslices"
_CHECK_SECONDS: Final = 5.0
PORT_NAME: Final = "extender"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where this process answers."""

    pod: PodName
    address: str
    port: int


class _SliceMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _SliceEndpoint(msgspec.Struct):
    addresses: list[str]


class _SlicePort(msgspec.Struct):
    port: int | None = None


class _EndpointSlice(msgspec.Struct):
    metadata: _SliceMetadata
    endpoints: list[_SliceEndpoint] | None = None
    ports: list[_SlicePort] | None = None


class LeaderEndpoints:
    """Keeps the slices of these Services at this process while it decides."""

    def __init__(
        self,
        client: Client,
        services: Sequence[tuple[str, str]],
        endpoint: Endpoint,
        *,
        epoch: Callable[[], int | None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`epoch` is that of this process while it decides, and None while it does not."""
        self._client = client
        self._services = tuple(services)
        self._endpoint = endpoint
        self._epoch = epoch
        self._sleep = sleep
        self._failed: dict[tuple[str, str], str] = {}

    async def run(self) -> None:
        """Look at the slices every few seconds until cancelled, at once after a new epoch."""
        kept, looked = None, 0.0
        while True:
            epoch = self._epoch()
            if epoch is not None and (epoch != kept or looked >= _CHECK_SECONDS):
                for place in self._services:
                    await self._keep(place, epoch)
                kept, looked = epoch, 0.0
            await self._sleep(0.2)
            looked += 0.2

    async def _keep(self, place: tuple[str, str], epoch: int) -> None:
        try:
            await self.write(place, epoch)
        except KubeError as error:
            # Another leader was faster, or the next look succeeds.
            if self._failed.get(place) != str(error):
                self._failed[place] = str(error)
                service = "/".join(place)
                _log.warning("endpoints not written", service=service, error=str(error))
        else:
            self._failed.pop(place, None)

    async def write(self, place: tuple[str, str], epoch: int) -> None:
        """Point one Service here, unless a newer leader has pointed it elsewhere."""
        namespace, service = place
        folder = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        name = f"{service}-leader"
        call = Call("get", _RESOURCE, f"{folder}/{name}")
        found = await read_one(self._client, call, _EndpointSlice)
        wanted = self._describe(service, name, epoch)
        if found is None:
            await self._client.send(Call("create", _RESOURCE, folder), wanted)
            _log.info("endpoints written", service=f"{namespace}/{service}", epoch=epoch)
            return
        theirs = read_epoch(found.metadata.annotations)
        same = _read_targets(found) == [(self._endpoint.address, self._endpoint.port)]
        if theirs > epoch or (theirs == epoch and same):
            return
        wanted["metadata"]["resourceVersion"] = found.metadata.resource_version
        await self._client.send(Call("update", _RESOURCE, f"{folder}/{name}"), wanted)
        _log.info("endpoints written", service=f"{namespace}/{service}", epoch=epoch)

    def _describe(self, service: str, name: str, epoch: int) -> dict[str, Any]:
        here, pod = self._endpoint, self._endpoint.pod
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/service-name": service,
                    "endpointslice.kubernetes.io/managed-by": "slicewise.io",
                },
                "annotations": {EPOCH: str(epoch)},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
                ],
            },
            "addressType": f"IPv{ip_address(here.address).version}",
            "endpoints": [
                {
                    "addresses": [here.address],
                    "conditions": {"ready": True},
                    "targetRef": {
                        "kind": "Pod",
                        "name": pod.name,
                        "namespace": pod.namespace,
                        "uid": pod.uid,
                    },
                }
            ],
            "ports": [{"name": PORT_NAME, "port": here.port, "protocol": "TCP"}],
        }


def _read_targets(found: _EndpointSlice) -> list[tuple[str, int | None]]:
    """Every address of a slice with each of its ports."""
    addresses = [each for endpoint in found.endpoints or () for each in endpoint.addresses]
    return [(address, each.port) for address in addresses for each in found.ports or ()]
