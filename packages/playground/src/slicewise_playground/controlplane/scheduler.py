"""A small scheduler: one pod at a time through its extenders, then bound, else tried again later.

It speaks the extender protocol as kube-scheduler does and decides nothing about GPUs. Several
systems' schedulers are played by one loop: each pod goes by the profile of its resources.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import aiohttp
import msgspec

from slicewise.model.backoff import Backoff
from slicewise_playground.api.deletion import ENDED
from slicewise_playground.api.watches import HistoryReader
from slicewise_playground.api.writes import EmbeddedApi
from slicewise_playground.controlplane.extender_calls import (
    ExtenderCaller,
    ExtenderConfig,
    ExtenderError,
    named_resources,
)
from slicewise_playground.controlplane.node_checks import measure_nodes, refuse_node
from slicewise_playground.controlplane.scheduler_events import SchedulerEvents, count_reasons
from slicewise_playground.objects.errors import ApiError
from slicewise_playground.objects.resources import Object, find
from slicewise_playground.objects.store import StoreKey, key_of

NODES = find("nodes")
PODS = find("pods")


@dataclass(frozen=True, slots=True)
class SchedulerProfile:
    """One system's scheduler: which pods are its own, and the extenders it asks."""

    name: str
    resources: frozenset[str]
    """A pod that names one of these belongs to it."""
    extenders: tuple[ExtenderConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulerDelays:
    """How long a pod that could not be placed waits for its next try, and a bind for its answer."""

    backoff: Backoff = field(default_factory=lambda: Backoff(1.0, 10.0))
    """How long a pod that could not be placed waits for its next try."""
    bind_seconds: float = 30.0
    """How long the API may take for a Binding of our own."""


@dataclass(slots=True)
class _Waiting:
    """A pod that is not placed yet."""

    uid: str
    failures: int = 0
    timer: asyncio.TimerHandle | None = None


@dataclass(frozen=True, slots=True)
class _Choice:
    """A pod, the node it goes to, and the extenders that were asked."""

    pod: Object
    node: str
    callers: list[ExtenderCaller]


class SmallScheduler:
    """Places the pods of an embedded API until cancelled."""

    def __init__(
        self,
        api: EmbeddedApi,
        url: Callable[[], str],
        profiles: Sequence[SchedulerProfile],
        patience: SchedulerDelays | None = None,
    ) -> None:
        """Read through the API, bind at its address; pods of no profile have no extender."""
        self._api = api
        self._url = url
        self._profiles = tuple(profiles)
        self._patience = patience or SchedulerDelays()
        self._notices = SchedulerEvents(api)
        self._ready: dict[StoreKey, None] = {}
        self._waiting: dict[StoreKey, _Waiting] = {}
        self._assumed: dict[str, _Choice] = {}
        self._binding: set[asyncio.Task[None]] = set()
        self._watcher: HistoryReader | None = None

    async def run(self) -> None:
        """Schedule until cancelled."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            try:
                while True:
                    # Whoever's history expired lists and watches again.
                    with contextlib.suppress(ApiError):
                        await self._follow(session)
            finally:
                for entry in self._waiting.values():
                    if entry.timer is not None:
                        entry.timer.cancel()
                for task in self._binding:
                    task.cancel()
                await asyncio.gather(*self._binding, return_exceptions=True)

    async def _follow(self, session: aiohttp.ClientSession) -> None:
        """Look at every pod, then at every change, until the history expires."""
        store = self._api.store
        with store.lock:
            watcher = self._watcher = HistoryReader(store, PODS.collection, store.revision)
            first = [entry.object for entry in store.collections[PODS.collection].entries.values()]
        try:
            for pod in first:
                self._notice(pod)
            while True:
                for change in watcher.take():
                    if change.new is not None:
                        self._notice(change.new.object)
                    elif change.old is not None:
                        self._forget(key_of(change.old.object))
                if self._ready:
                    key = next(iter(self._ready))
                    del self._ready[key]
                    await self._try(key, session)
                else:
                    await watcher.wait(3600)
        finally:
            watcher.close()

    def _notice(self, pod: Object) -> None:
        """Queue a pod that needs a node, and forget one that no longer does."""
        key, uid = key_of(pod), pod["metadata"]["uid"]
        if not _needs_node(pod):
            self._forget(key)
            return
        known = self._waiting.get(key)
        if known is None or known.uid != uid:
            self._forget(key)
            self._waiting[key] = _Waiting(uid)
            self._ready[key] = None

    def _forget(self, key: StoreKey) -> None:
        self._ready.pop(key, None)
        entry = self._waiting.pop(key, None)
        if entry is not None and entry.timer is not None:
            entry.timer.cancel()

    async def _try(self, key: StoreKey, session: aiohttp.ClientSession) -> None:
        """One scheduling cycle; the bind that ends it goes on beside the next cycle."""
        entry = self._api.store.get(PODS.collection, key)
        waiting = self._waiting.get(key)
        if entry is None or waiting is None or not _needs_node(entry.object):
            return
        pod = entry.object
        profile = self._profile(pod)
        try:
            choice = await self._choose(pod, profile, session)
        except ExtenderError as error:
            self._fail(pod, str(error), "SchedulerError")
            return
        if isinstance(choice, str):
            self._fail(pod, choice)
            return
        self._assumed[waiting.uid] = choice
        task = asyncio.create_task(self._bind(choice, session))
        self._binding.add(task)
        task.add_done_callback(self._binding.discard)

    async def _choose(
        self, pod: Object, profile: SchedulerProfile, session: aiohttp.ClientSession
    ) -> _Choice | str:
        """The node for a pod, or why there is none."""
        reasons, nodes = self._screen(pod, profile)
        callers = [ExtenderCaller(each, session) for each in profile.extenders if each.wants(pod)]
        for caller in callers:
            if not nodes or not caller.config.filter_verb:
                continue
            try:
                verdict = await caller.filter(pod, list(nodes.values()))
            except ExtenderError:
                if caller.config.ignorable:
                    continue
                raise
            reasons |= verdict.failed
            nodes = {name: nodes[name] for name in verdict.nodes if name in nodes}
        if not nodes:
            return count_reasons(reasons)
        return _Choice(pod, await self._best(pod, nodes, callers), callers)

    async def _best(
        self, pod: Object, nodes: dict[str, Object], callers: list[ExtenderCaller]
    ) -> str:
        """The node with the most points; of equals the first by name."""
        points = dict.fromkeys(sorted(nodes), 0)
        for caller in callers if len(nodes) > 1 else ():
            if caller.config.prioritize_verb:
                # Extenders that fail to score are ignored, whatever their configuration says.
                with contextlib.suppress(ExtenderError):
                    for name, score in (await caller.prioritize(pod, list(nodes.values()))).items():
                        points[name] = points.get(name, 0) + score
        return max(points, key=points.__getitem__)

    def _screen(
        self, pod: Object, profile: SchedulerProfile
    ) -> tuple[dict[str, str], dict[str, Object]]:
        """Nodes that cannot take the pod, with reasons, and nodes that may."""
        ignored = {
            managed.name
            for each in profile.extenders
            for managed in each.managed_resources
            if managed.ignored_by_scheduler
        }
        held = measure_nodes(self._placed())
        reasons, nodes = {}, {}
        with self._api.store.lock:
            entries = list(self._api.store.collections[NODES.collection].entries.values())
        for node in (entry.object for entry in entries):
            name = node["metadata"]["name"]
            why = refuse_node(pod, node, held.get(name, {}), ignored)
            if why is None:
                nodes[name] = node
            else:
                reasons[name] = why
        return reasons, nodes

    def _placed(self) -> Iterator[tuple[str, Object]]:
        """Every pod with the node it is on, or is being bound to."""
        with self._api.store.lock:
            entries = list(self._api.store.collections[PODS.collection].entries.values())
        for pod in (entry.object for entry in entries):
            assumed = self._assumed.get(pod["metadata"]["uid"])
            node = pod["spec"].get("nodeName") or (None if assumed is None else assumed.node)
            if node:
                yield node, pod

    async def _bind(self, choice: _Choice, session: aiohttp.ClientSession) -> None:
        """Bind by the extender that offers it, else by ourselves."""
        pod = choice.pod
        binder = next((each for each in choice.callers if each.config.bind_verb), None)
        try:
            if binder is not None:
                await binder.bind(pod, choice.node)
            else:
                await self._post_binding(pod, choice.node, session)
        except ExtenderError as error:
            self._assumed.pop(pod["metadata"]["uid"], None)
            self._fail(pod, f"binding rejected: {error}", "SchedulerError")
        else:
            self._assumed.pop(pod["metadata"]["uid"], None)
            self._notices.placed(pod, choice.node)

    async def _post_binding(self, pod: Object, node: str, session: aiohttp.ClientSession) -> None:
        """Write the Binding as kube-scheduler's default binder does."""
        meta = pod["metadata"]
        url = f"{self._url()}/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding"
        named = {key: meta[key] for key in ("name", "namespace", "uid")}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": named}
        body["target"] = {"kind": "Node", "name": node}
        content, headers = msgspec.json.encode(body), {"Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=self._patience.bind_seconds)
        try:
            async with session.post(
                url, data=content, headers=headers, timeout=timeout
            ) as response:
                text = await response.text()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ExtenderError(f"no answer from {url}: {error}") from error
        if response.status >= 300:
            raise ExtenderError(f"{url} answered {response.status}: {text[:200]}")

    def _fail(self, pod: Object, words: str, reason: str = "Unschedulable") -> None:
        """Tell why, and try again later."""
        key = key_of(pod)
        waiting = self._waiting.get(key)
        if waiting is None or waiting.uid != pod["metadata"]["uid"]:
            return
        self._notices.failed(pod, words, reason)
        waiting.failures += 1
        loop = asyncio.get_running_loop()
        delay = self._patience.backoff.delay(waiting.failures, 1.0)
        waiting.timer = loop.call_later(delay, self._again, key, waiting)

    def _again(self, key: StoreKey, waiting: _Waiting) -> None:
        if self._waiting.get(key) is waiting:
            self._ready[key] = None
            if self._watcher is not None:
                self._watcher.wake()

    def _profile(self, pod: Object) -> SchedulerProfile:
        named = named_resources(pod)
        found = (each for each in self._profiles if not each.resources.isdisjoint(named))
        return next(found, SchedulerProfile("default", frozenset()))


def _needs_node(pod: Object) -> bool:
    """Whether a pod waits for a scheduler."""
    return not (
        pod["spec"].get("nodeName")
        or pod["spec"].get("schedulingGates")
        or pod["metadata"].get("deletionTimestamp")
        or (pod.get("status") or {}).get("phase") in ENDED
    )
