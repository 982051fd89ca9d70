"""Which container a call of the kubelet is about: the one that holds exactly these units.

Nobody is guessed. The kubelet is asked who holds the units; the API server's watch says which pod
that is, and what it was allocated. The kubelet's device checkpoint, which is only read, tells a pod
from one of the same name before it, and names containers that pod-resources leaves out, such as
init containers.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from slicewise.kube.local_pods import LocalPod
from slicewise.kubelet.errors import DeniedError, KubeletError
from slicewise.kubelet.holders import Holder, PodResourcesClient
from slicewise.kubelet.runtime import RuntimeClient
from slicewise.model import Container, Role, find_count
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.cdi import name_units

_log = structlog.get_logger(__name__)
_GUESSES: Final = 2
CHECKPOINT: Final = "kubelet_internal_checkpoint"


@dataclass(frozen=True, slots=True)
class ContainerRef:
    found: LocalPod
    container: Container

    @property
    def name(self) -> str:
        pod = self.found.pod
        return f"{pod.namespace}/{pod.name}/{self.container.name}"


class ContainerResolver:
    """Finds the container that holds units."""

    def __init__(
        self,
        pods: NodePods,
        holders: PodResourcesClient,
        checkpoint: Path,
        *,
        runtime: RuntimeClient | None = None,
        wait_seconds: float = 5.0,
    ) -> None:
        self._pods = pods
        self._holders = holders
        self._checkpoint = checkpoint
        self._runtime = runtime
        self._wait_seconds = wait_seconds
        self._known: dict[str, tuple[str, str]] = {}
        """The pod that was found last for each set of units."""
        self._sets: dict[tuple[str, str, str], str] = {}
        """The set of units by which each pod's container holds each resource."""

    async def find(self, resource: str, ids: frozenset[str]) -> ContainerRef:
        """The container that holds exactly these units, in the pod that exists now."""
        name = name_units(resource, ids)
        holder = await self._ask_likely(resource, ids, name)
        if holder is None:
            try:
                holder = await self._holders.find(resource, ids)
            except KubeletError as error:
                raise DeniedError(
                    f"cannot tell which container holds this {resource}: {error}"
                ) from error
        if holder is not None:
            self._known[name] = holder.namespace, holder.pod
            entries = await asyncio.to_thread(find_entries, self._checkpoint, resource, ids)
            owners = frozenset(uid for uid, _ in entries)
            ref = await self._find_pod(holder, resource, name, owners)
        else:
            ref = await self._read_checkpoint(resource, ids)
        ref = await self._follow_init_order(ref, resource, ids)
        if ref.container.role is not Role.INIT:
            self._sets[ref.found.pod.uid, ref.container.name, resource] = name
        return ref

    def forget(self, living: Callable[[str], bool]) -> None:
        """Drop what is known of pods that are gone."""
        self._sets = {key: name for key, name in self._sets.items() if living(key[0])}
        kept = set(self._sets.values())
        self._known = {name: pod for name, pod in self._known.items() if name in kept}

    async def _ask_likely(self, resource: str, ids: frozenset[str], name: str) -> Holder | None:
        """The holder, if it is a pod that is likely to be it; asking for one pod is cheap."""
        likely = [self._known[name]] if name in self._known else []
        likely += self._guess(resource, len(ids))
        for namespace, pod in likely[:_GUESSES]:
            for holder in await self._holders.get(namespace, pod) or ():
                if holder.units.get(resource) == ids:
                    return holder
        return None

    def _guess(self, resource: str, count: int) -> list[tuple[str, str]]:
        return [
            (found.pod.namespace, found.pod.name)
            for found in self._pods
            if not found.pod.phase.terminal
            and any(
                amount(each, resource) == count
                and (found.pod.uid, each.name, resource) not in self._sets
                for each in found.pod.containers
            )
        ]

    async def _find_pod(
        self, holder: Holder, resource: str, name: str, owners: frozenset[str]
    ) -> ContainerRef:
        """The pod behind the kubelet's names, which carry no UID; `owners` has it where known."""

        def look() -> ContainerRef | None:
            found = self._pods.by_name(holder.namespace, holder.pod)
            if found is None or found.pod.phase.terminal:
                return None
            if owners and owners.isdisjoint((found.pod.uid, found.cgroup)):
                # A pod of that name before it, which the watch still shows.
                return None
            ref = _pick(found, holder.container)
            # A pod's container never changes its units; other units mean a namesake that the
            # watch has not shown yet.
            before = self._sets.get((found.pod.uid, holder.container, resource))
            return None if ref is None or before not in (None, name) else ref

        ref = await self._pods.until(look, self._wait_seconds)
        if ref is None:
            raise DeniedError(
                f"pod {holder.namespace}/{holder.pod} holds these units of {resource}, "
                "and the watch has not shown it yet; trying again"
            )
        return ref

    async def _read_checkpoint(self, resource: str, ids: frozenset[str]) -> ContainerRef:
        for entry in await asyncio.to_thread(find_entries, self._checkpoint, resource, ids):

            def look(entry: tuple[str, str] = entry) -> ContainerRef | None:
                found = self._pods.by_uid(entry[0])
                return None if found is None else _pick(found, entry[1])

            ref = await self._pods.until(look, self._wait_seconds)
            if ref is not None:
                return ref
        raise DeniedError(f"no container holds these {len(ids)} of {resource} yet; trying again")

    async def _follow_init_order(
        self, ref: ContainerRef, resource: str, ids: frozenset[str]
    ) -> ContainerRef:
        """The container whose turn it is, where init containers held the same units before it."""
        pod = ref.found.pod
        rivals = [
            each
            for each in pod.containers
            if each.role is Role.INIT and amount(each, resource) == len(ids)
        ]
        if not rivals or ref.container.role is Role.SIDECAR:
            return ref
        entries = await asyncio.to_thread(find_entries, self._checkpoint, resource, ids)
        same = {container for uid, container in entries if uid == pod.uid}
        finished = None if self._runtime is None else await self._runtime.finished(pod.uid)
        if finished is None:
            finished = frozenset(each.name for each in ref.found.containers if each.ended)
        for rival in rivals:
            if rival.name in same and rival.name not in finished:
                return ContainerRef(ref.found, rival)
        last = ref.container
        if last.role is Role.INIT and last.name in finished:
            later = [each for each in pod.main_containers if each.name in same]
            return ContainerRef(ref.found, later[0]) if later else ref
        return ref


def amount(container: Container, resource: str) -> int:
    """How many of the resource the container asks the kubelet for; 0 when it cannot be read."""
    return find_count(container.limits.get(resource)) or 0


def _pick(found: LocalPod, container: str) -> ContainerRef | None:
    chosen = next((each for each in found.pod.containers if each.name == container), None)
    return None if chosen is None else ContainerRef(found, chosen)


class _EntryBody(msgspec.Struct, rename="pascal"):
    pod_uid: str = msgspec.field(default="", name="PodUID")
    container_name: str = ""
    resource_name: str = ""
    device_ids: Any = msgspec.field(default=None, name="DeviceIDs")


class _DataBody(msgspec.Struct, rename="pascal"):
    pod_device_entries: list[_EntryBody] | None = None


class _FileBody(msgspec.Struct, rename="pascal"):
    data: _DataBody = msgspec.field(default_factory=_DataBody)


def find_entries(folder: Path, resource: str, ids: frozenset[str]) -> list[tuple[str, str]]:
    """UID and container of whoever holds exactly these units; none if the file is unreadable."""
    path = folder / CHECKPOINT
    try:
        body = msgspec.json.decode(path.read_bytes(), type=_FileBody)
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        _log.warning("checkpoint unreadable", path=str(path), error=str(error))
        return []
    return [
        (each.pod_uid, each.container_name)
        for each in body.data.pod_device_entries or ()
        if each.resource_name == resource and _read_ids(each.device_ids) == ids
    ]


def _read_ids(given: Any) -> frozenset[str]:
    # Kubelets before 1.20 wrote one list, those since then one for each NUMA node.
    lists = given.values() if isinstance(given, dict) else [given]
    return frozenset(
        each for ids in lists if isinstance(ids, list) for each in ids if isinstance(each, str)
    )
