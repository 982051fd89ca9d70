"""Calling scheduler extenders as kube-scheduler does, from the same configuration.

The structs read the `extenders` part of a KubeSchedulerConfiguration and, like the original,
refuse keys they do not know.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import msgspec

from slicewise.model import SlicewiseError
from slicewise_playground.objects.resources import Object

_DURATION: Final = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>ms|s|m)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
_TOP_EXTENDER_SCORE: Final = 10
_TOP_NODE_SCORE: Final = 100


class ExtenderError(SlicewiseError):
    """An extender that did not answer, or answered with an error."""


class ManagedResource(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True
):
    """A resource by which an extender's pods are known."""

    name: str
    ignored_by_scheduler: bool = False


class ExtenderConfig(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True
):
    """One entry of `extenders`."""

    url_prefix: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    bind_verb: str = ""
    weight: int = 1
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    http_timeout: str = "5s"
    node_cache_capable: bool = False
    ignorable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()

    def wants(self, pod: Object) -> bool:
        """Whether this extender is asked about a pod: all of them, or those it manages."""
        names = {each.name for each in self.managed_resources}
        return not names or not names.isdisjoint(named_resources(pod))

    @property
    def seconds(self) -> float:
        """How long one call may take."""
        match = _DURATION.fullmatch(self.http_timeout)
        if match is None:
            raise ExtenderError(f"httpTimeout={self.http_timeout!r}: expected a time like '30s'")
        return float(match["number"]) * _UNITS[match["unit"]]


@dataclass(frozen=True, slots=True)
class ExtenderFilterResult:
    """What a filter left over, and why it dropped the others."""

    nodes: list[str]
    failed: Mapping[str, str]


def read_extenders(document: Mapping[str, Any]) -> tuple[ExtenderConfig, ...]:
    """The extenders of a KubeSchedulerConfiguration."""
    try:
        return msgspec.convert(document.get("extenders") or [], tuple[ExtenderConfig, ...])
    except msgspec.ValidationError as error:
        raise ExtenderError(f"extenders: {error}") from error


def named_resources(pod: Object) -> set[str]:
    """Every resource that a container of the pod names, with whatever amount."""
    spec = pod["spec"]
    containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    found: set[str] = set()
    for container in containers:
        for part in ((container.get("resources") or {}).get(key) for key in ("limits", "requests")):
            found.update(part or {})
    return found


class ExtenderCaller:
    """One extender behind one connection pool."""

    def __init__(self, config: ExtenderConfig, session: aiohttp.ClientSession) -> None:
        """Call by this configuration."""
        self.config = config
        self._session = session

    async def filter(self, pod: Object, nodes: Sequence[Object]) -> ExtenderFilterResult:
        """The nodes that can take the pod."""
        reply = await self._call(self.config.filter_verb, self._args(pod, nodes))
        if reply.get("Error"):
            raise ExtenderError(str(reply["Error"]))
        failed = {**(reply.get("FailedNodes") or {})}
        failed |= reply.get("FailedAndUnresolvableNodes") or {}
        if self.config.node_cache_capable and reply.get("NodeNames") is not None:
            return ExtenderFilterResult(list(reply["NodeNames"]), failed)
        items = (reply.get("Nodes") or {}).get("items") or []
        return ExtenderFilterResult([item["metadata"]["name"] for item in items], failed)

    async def prioritize(self, pod: Object, nodes: Sequence[Object]) -> dict[str, int]:
        """Points of each node, weighed as the scheduler weighs them."""
        reply = await self._call(self.config.prioritize_verb, self._args(pod, nodes))
        scale = self.config.weight * (_TOP_NODE_SCORE // _TOP_EXTENDER_SCORE)
        return {row["Host"]: row["Score"] * scale for row in reply or []}

    async def bind(self, pod: Object, node: str) -> None:
        """Have the extender bind the pod; raises when it says that it did not."""
        meta = pod["metadata"]
        args = {
            "PodName": meta["name"],
            "PodNamespace": meta["namespace"],
            "PodUID": meta["uid"],
            "Node": node,
        }
        reply = await self._call(self.config.bind_verb, args)
        if reply.get("Error"):
            raise ExtenderError(str(reply["Error"]))

    def _args(self, pod: Object, nodes: Sequence[Object]) -> Object:
        """The request of filter and prioritize, with names or whole nodes."""
        whole = {"kind": "Pod", "apiVersion": "v1", **pod}
        if self.config.node_cache_capable:
            names = [node["metadata"]["name"] for node in nodes]
            return {"Pod": whole, "Nodes": None, "NodeNames": names}
        return {"Pod": whole, "Nodes": {"metadata": {}, "items": list(nodes)}, "NodeNames": None}

    async def _call(self, verb: str, body: Object) -> Any:
        """The decoded answer to one POST."""
        url = f"{self.config.url_prefix.rstrip('/')}/{verb}"
        headers = {"Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=self.config.seconds)
        try:
            async with self._session.post(
                url, data=msgspec.json.encode(body), headers=headers, timeout=timeout
            ) as response:
                text = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            what = str(error) or type(error).__name__
            raise ExtenderError(f"no answer from {url}: {what}") from error
        if response.status != 200:
            raise ExtenderError(f"{url} answered {response.status}")
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise ExtenderError(f"{url} answered no JSON: {error}") from error
