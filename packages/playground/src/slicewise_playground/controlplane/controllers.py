"""Small controllers: pods for deployments, replica sets, stateful sets and jobs, and their end.

They act on the store as a controller manager would over the API, and only when something changed.
A change of a deployment's template replaces all its pods at once.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

from slicewise_playground.api.deletion import ENDED, delete
from slicewise_playground.api.watches import HistoryReader
from slicewise_playground.api.writes import EmbeddedApi, ObjectRef
from slicewise_playground.controlplane.owned_objects import (
    is_ready,
    make_pod,
    make_replica_set,
    owner_uids,
    template_hash,
)
from slicewise_playground.objects.errors import ApiError
from slicewise_playground.objects.resources import ApiResource, Object, find
from slicewise_playground.objects.store import StoreChange, key_of

PODS = find("pods")
REPLICA_SETS = find("replicasets")
DEPLOYMENTS = find("deployments")
STATEFUL_SETS = find("statefulsets")
JOBS = find("jobs")
WATCHED = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, JOBS, PODS)


class WorkloadControllers:
    """Everything that makes or removes objects for other objects."""

    def __init__(self, api: EmbeddedApi) -> None:
        """Act through an API."""
        self._api = api
        self._dirty: dict[str, None] = {}
        self._owners: dict[str, tuple[ApiResource, ObjectRef]] = {}
        self._children: dict[str, dict[ObjectRef, None]] = {}

    async def run(self) -> None:
        """Reconcile until cancelled."""
        while True:
            # Controllers whose history expired list and watch again.
            with contextlib.suppress(ApiError):
                await self._follow()

    async def _follow(self) -> None:
        """Read every object, then every change, until the history expires."""
        store = self._api.store
        with store.lock:
            watchers = [HistoryReader(store, row.collection, store.revision) for row in WATCHED]
            self._owners.clear()
            self._children.clear()
            for row in WATCHED:
                for entry in store.collections[row.collection].entries.values():
                    self._learn(row, entry.object)
        try:
            while True:
                for row, watcher in zip(WATCHED, watchers, strict=True):
                    for change in watcher.take():
                        self._notice(row, change)
                self._reconcile()
                await _any(watchers)
        finally:
            for watcher in watchers:
                watcher.close()

    def _notice(self, row: ApiResource, change: StoreChange) -> None:
        """Take in one change."""
        if change.new is not None:
            self._learn(row, change.new.object)
            return
        assert change.old is not None
        item = change.old.object
        target = ObjectRef(row, *key_of(item))
        for uid in owner_uids(item):
            self._children.get(uid, {}).pop(target, None)
            self._dirty[uid] = None
        uid = item["metadata"]["uid"]
        if self._owners.pop(uid, None) is not None:
            for child in list(self._children.pop(uid, {})):
                with contextlib.suppress(ApiError):
                    delete(self._api, child)

    def _learn(self, row: ApiResource, item: Object) -> None:
        """Remember an object, its owners, and that both need a look."""
        target = ObjectRef(row, *key_of(item))
        if row is not PODS:
            self._owners[item["metadata"]["uid"]] = (row, target)
            self._dirty[item["metadata"]["uid"]] = None
        for uid in owner_uids(item):
            self._children.setdefault(uid, {})[target] = None
            self._dirty[uid] = None

    def _reconcile(self) -> None:
        """Bring every owner that needs a look to what it asks for."""
        while self._dirty:
            uid = next(iter(self._dirty))
            del self._dirty[uid]
            found = self._owners.get(uid)
            if found is None:
                continue
            row, target = found
            entry = self._api.store.get(row.collection, target.key)
            if entry is None or entry.object["metadata"].get("deletionTimestamp"):
                continue
            with contextlib.suppress(ApiError):
                self._steps[row.kind](self, target, entry.object)

    def _children_of(self, item: Object, row: ApiResource) -> Iterator[Object]:
        """The living objects of one resource that an object owns."""
        for target in list(self._children.get(item["metadata"]["uid"], {})):
            entry = self._api.store.get(target.resource.collection, target.key)
            if target.resource is row and entry is not None:
                yield entry.object

    def _pods_of(self, item: Object) -> list[Object]:
        """The pods of an owner that are not being deleted, oldest first."""
        pods = self._children_of(item, PODS)
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def _deployment(self, target: ObjectRef, item: Object) -> None:
        """One replica set per template, and replicas only for the newest."""
        name = f"{item['metadata']['name']}-{template_hash(item)}"
        sets = {row["metadata"]["name"]: row for row in self._children_of(item, REPLICA_SETS)}
        wanted = item["spec"].get("replicas", 1)
        if name not in sets:
            made = self._api.create(
                ObjectRef(REPLICA_SETS, target.namespace), make_replica_set(item, name)
            )
            self._learn(REPLICA_SETS, made.object)
            sets[name] = made.object
        for other, row in sets.items():
            replicas = wanted if other == name else 0
            if row["spec"].get("replicas") != replicas:
                self._set_replicas(ObjectRef(REPLICA_SETS, target.namespace, other), replicas)
        pods = [pod for row in sets.values() for pod in self._pods_of(row)]
        current = self._pods_of(sets[name])
        ready = sum(1 for pod in pods if is_ready(pod))
        status: Object = _counts(item, replicas=len(pods), readyReplicas=ready)
        status.update(_counts(item, updatedReplicas=len(current), availableReplicas=ready))
        enough = "True" if ready >= wanted else "False"
        status["conditions"] = [{"type": "Available", "status": enough}]
        self._write_status(target, status)

    def _replica_set(self, target: ObjectRef, item: Object) -> None:
        """As many pods as replicas."""
        pods = [pod for pod in self._pods_of(item) if pod["status"].get("phase") not in ENDED]
        wanted = item["spec"].get("replicas", 1)
        for _ in range(wanted - len(pods)):
            self._create_pod(item, {"generateName": f"{item['metadata']['name']}-"})
        # Pods that do nothing yet go first.
        for pod in sorted(pods, key=is_ready)[: max(0, len(pods) - wanted)]:
            delete(self._api, ObjectRef(PODS, *key_of(pod)))
        pods = self._pods_of(item)
        ready = sum(1 for pod in pods if is_ready(pod))
        self._write_status(
            target,
            _counts(item, replicas=len(pods), readyReplicas=ready, availableReplicas=ready),
        )

    def _stateful_set(self, target: ObjectRef, item: Object) -> None:
        """Pods numbered from zero, each after the one before it is ready unless told otherwise."""
        name = item["metadata"]["name"]
        wanted = item["spec"].get("replicas", 1)
        pods = {pod["metadata"]["name"]: pod for pod in self._children_of(item, PODS)}
        one_by_one = item["spec"].get("podManagementPolicy") != "Parallel"
        for number in range(wanted):
            pod = pods.get(f"{name}-{number}")
            if pod is None:
                labels = {
                    "statefulset.kubernetes.io/pod-name": f"{name}-{number}",
                    "apps.kubernetes.io/pod-index": str(number),
                }
                self._create_pod(item, {"name": f"{name}-{number}", "labels": labels})
            if one_by_one and (pod is None or not is_ready(pod)):
                break
        for number in range(wanted, wanted + len(pods)):
            pod = pods.get(f"{name}-{number}")
            if pod is not None and not pod["metadata"].get("deletionTimestamp"):
                delete(self._api, ObjectRef(PODS, *key_of(pod)))
        pods_now = self._pods_of(item)
        ready = sum(1 for pod in pods_now if is_ready(pod))
        self._write_status(
            target,
            _counts(item, replicas=len(pods_now), readyReplicas=ready, availableReplicas=ready),
        )

    def _job(self, target: ObjectRef, item: Object) -> None:
        """Pods until so many have succeeded, or too many have failed."""
        spec = item["spec"]
        pods = list(self._children_of(item, PODS))
        phases = [pod["status"].get("phase") for pod in pods]
        succeeded, failed = phases.count("Succeeded"), phases.count("Failed")
        active = len(phases) - succeeded - failed
        wanted = spec.get("completions") or 1
        status = _counts(item, succeeded=succeeded, failed=failed)
        del status["observedGeneration"]
        status["startTime"] = item["status"].get("startTime") or self._api.stamp()
        if succeeded >= wanted:
            status["conditions"] = [{"type": "Complete", "status": "True"}]
            status["completionTime"] = item["status"].get("completionTime") or self._api.stamp()
        elif failed > spec.get("backoffLimit", 6):
            row = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
            status["conditions"] = [row]
        else:
            room = min(spec.get("parallelism", 1), wanted - succeeded) - active
            for _ in range(max(0, room)):
                self._create_pod(item, {"generateName": f"{item['metadata']['name']}-"})
                active += 1
        status["active"] = active
        self._write_status(target, status)

    def _create_pod(self, owner: Object, metadata: Object) -> None:
        """Create one pod from an owner's template."""
        namespace = owner["metadata"]["namespace"]
        row = self._owners[owner["metadata"]["uid"]][0]
        made = self._api.create(ObjectRef(PODS, namespace), make_pod(row, owner, metadata))
        self._learn(PODS, made.object)

    def _set_replicas(self, target: ObjectRef, replicas: int) -> None:
        """Write the replicas of a workload."""
        self._api.patch(
            target, lambda item: {**item, "spec": {**item["spec"], "replicas": replicas}}
        )

    def _write_status(self, target: ObjectRef, status: Object) -> None:
        """Write the status of a workload, if it says anything new."""
        where = ObjectRef(target.resource, target.namespace, target.name, "status")
        self._api.patch(where, lambda item: {**item, "status": {**item["status"], **status}})

    _steps: ClassVar[Mapping[str, Callable[["WorkloadControllers", ObjectRef, Object], None]]] = {
        "Deployment": _deployment,
        "ReplicaSet": _replica_set,
        "StatefulSet": _stateful_set,
        "Job": _job,
    }


def _counts(item: Object, **numbers: int) -> Object:
    """A status of counts that also says which spec it answers."""
    return {**numbers, "observedGeneration": item["metadata"].get("generation", 1)}


async def _any(watchers: list[HistoryReader]) -> None:
    """Return once one of the watchers has news."""
    tasks = [asyncio.ensure_future(watcher.wait(3600)) for watcher in watchers]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
