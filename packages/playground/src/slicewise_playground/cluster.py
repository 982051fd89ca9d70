"""The embedded cluster: store, API and HTTP server under one start and stop."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import yaml

from slicewise.httpd import ServerSettings
from slicewise_playground.api.deletion import DeleteOptions, delete
from slicewise_playground.api.fault_routes import FaultRoutes
from slicewise_playground.api.faults import ANY, FaultInjector, FaultTarget, InjectedFault
from slicewise_playground.api.handler import ApiHandler
from slicewise_playground.api.reviews import ReviewAnswers
from slicewise_playground.api.subresources import bind
from slicewise_playground.api.writes import VERSION, EmbeddedApi, ObjectRef
from slicewise_playground.objects.patches import merge
from slicewise_playground.objects.resources import Object, find
from slicewise_playground.objects.store import HISTORY, ObjectStore
from slicewise_playground.threaded_server import ThreadedServer

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class Playground:
    """An embedded Kubernetes API on a free port, with the same verbs for Python.

    The methods are safe from any thread; objects they return must not be changed in place.
    """

    def __init__(
        self,
        *,
        settings: ServerSettings | None = None,
        history: int = HISTORY,
        now: Callable[[], datetime] | None = None,
        version: str = VERSION,
    ) -> None:
        """Fill the store with what every cluster has; nothing is served before `start`."""
        self.store = ObjectStore(history)
        self.api = EmbeddedApi(self.store, now, version)
        self.faults = FaultInjector()
        self.answers = ReviewAnswers()
        self._service = ApiHandler(self.api, self.faults, self.answers)
        self._admin = FaultRoutes(self.store, self.faults, self._service.watchers)
        self._background: list[Work] = []
        # A request that a fault leaves hanging must not be answered by a time limit.
        settings = settings or ServerSettings(request_seconds=None)
        self._server = ThreadedServer(self._service, settings, background=self._run_background)
        self._bootstrap()

    @property
    def url(self) -> str:
        """The address of the API."""
        return self._server.url

    def writes(self, verb: str, resource: str) -> Counter[str]:
        """How often each object was written over HTTP, by `namespace/name`; `*` is any."""
        return _count(self._service.written, verb, resource)

    def requests(self, verb: str = ANY, resource: str = ANY) -> Counter[str]:
        """How often each object was asked for over HTTP, reads and lists included."""
        return _count(self._service.asked, verb, resource)

    def run(self, work: Work) -> None:
        """Run background work on the server's loop from start to stop."""
        self._background.append(work)

    def start(self) -> Self:
        """Serve from now on."""
        self._server.start()
        return self

    def stop(self) -> None:
        """Serve no more."""
        self._server.stop()

    def __enter__(self) -> Self:
        """Start on entry."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop on exit."""
        self.stop()

    def get(self, resource: str, name: str, namespace: str = "default") -> Object:
        """One object, or an ApiError with code 404."""
        return self.api.get(_target(resource, namespace, name)).object

    def objects(self, resource: str, namespace: str = "") -> list[Object]:
        """All objects of a resource, of one namespace if one is given."""
        with self.store.lock:
            home = self.store.collections[find(resource).collection]
            return [
                home.entries[key].object
                for key in home.ordered()
                if not namespace or key[0] == namespace
            ]

    def create(self, resource: str, item: Object) -> Object:
        """Create an object in the namespace it names, or in `default`."""
        namespace = (item.get("metadata") or {}).get("namespace") or "default"
        return self.api.create(_target(resource, namespace), item).object

    def patch(
        self,
        resource: str,
        name: str,
        patch: Object,
        *,
        namespace: str = "default",
        status: bool = False,
    ) -> Object:
        """Apply a merge patch to an object, or to its status."""
        target = _target(resource, namespace, name, "status" if status else "")
        return self.api.patch(target, lambda item: merge(item, patch)).object

    def bind(self, name: str, node: str, namespace: str = "default", **metadata: Any) -> Object:
        """Bind a pod to a node; metadata such as annotations is merged into the pod."""
        body = {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}
        return bind(self.api, _target("pods", namespace, name), body).object

    def delete(
        self, resource: str, name: str, *, namespace: str = "default", grace: int | None = None
    ) -> None:
        """Delete an object; a bound pod waits for its kubelet unless grace is 0."""
        delete(self.api, _target(resource, namespace, name), DeleteOptions(grace_seconds=grace))

    def drop_watches(self, *, abrupt: bool = False) -> int:
        """End all watches and say how many there were."""
        return self._admin.drop_watches(abrupt=abrupt)

    def expire(self, *, as_status: bool = False) -> None:
        """Forget the history, so that every older revision is answered 410."""
        self._admin.expire(as_status=as_status)

    def write_kubeconfig(self, path: Path, authority: Path | None = None) -> Path:
        """Write a kubeconfig for this API, readable by its owner alone.

        With TLS, `authority` is the PEM file that clients trust.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(kubeconfig(self.url, authority), sort_keys=False))
        return path

    def _bootstrap(self) -> None:
        """Create the objects that every cluster has."""
        for name in NAMESPACES:
            self.create("namespaces", {"metadata": {"name": name}})
        for name, value in SYSTEM_CLASSES.items():
            self.create("priorityclasses", {"metadata": {"name": name}, "value": value})
        # As on a real server, history begins after the start.
        self.store.forget()

    async def _run_background(self) -> None:
        """Run all background work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for work in self._background:
                group.create_task(work())


def _count(requests: Mapping[FaultTarget, int], verb: str, resource: str) -> Counter[str]:
    asked = InjectedFault(verb=verb, resource=resource)
    found: Counter[str] = Counter()
    for each, count in list(requests.items()):
        if asked.matches(each):
            found[f"{each.namespace}/{each.name}"] += count
    return found


def kubeconfig(url: str, authority: Path | None = None) -> Object:
    """A kubeconfig with one context for an address."""
    name = "slicewise-playground"
    cluster = {"server": url}
    if authority is not None:
        cluster["certificate-authority"] = str(authority)
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def _target(resource: str, namespace: str, name: str = "", subresource: str = "") -> ObjectRef:
    """The target of a Python call."""
    row = find(resource)
    return ObjectRef(row, namespace if row.namespaced else "", name, subresource)
