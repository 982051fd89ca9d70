"""Writing to a cluster: a pod is bound and recorded in one request, and no Node is ever written.

Where the server drops the labels of a Binding, a patch writes them before it, so that nobody sees
a bound pod without them. The patch names the pod's version, so that one which arrives late, from a
leader that leads no more, changes nothing; and it holds labels alone, which nobody believes.

Every answer is turned into an outcome for the pod. A bind whose answer was lost may still be
carried out until the request timeout of the server is over; only then does an unbound pod count
as not bound. Both that timeout and ours end before another can lead, where the client has a fence.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from slicewise.kube.binding_labels import BindingLabels
from slicewise.kube.client import MERGE_PATCH, Call, Client
from slicewise.kube.errors import KubeError, LostError, RefusedError, UnreachedError
from slicewise.kube.events import EventRecorder
from slicewise.kube.eviction.evictions import evict_pod, find_blocked
from slicewise.kube.leading.fence import Fence, WriteLimits
from slicewise.kube.names import pod_path
from slicewise.kube.objects import Metadata, ObjectReader, PodBody
from slicewise.kube.outcomes import BindOutcome, PodEvent, PodKey, WriteOutcome, WriteStatus
from slicewise.kube.reads import decode_answer, read_one
from slicewise.model import Pod, PodRecord
from slicewise.model.backoff import Backoff

_POD: Final = msgspec.json.Decoder(PodBody)
# The server enforces its timeout a little late, and by another clock.
_MARGIN_SECONDS: Final = 1.0
_LOOKS: Final = Backoff(0.1, 1.0)
_NO_FENCE: Final = Fence()
# A pod that waits is changed now and then, by the scheduler for one.
_LABEL_ATTEMPTS: Final = 4


@dataclass(frozen=True, slots=True)
class _Found:
    """A pod as read for settling: its metadata, and as a model value."""

    body: PodBody
    pod: Pod


class PodWriter:
    """The ClusterWriter of a real cluster: one client, and the recorder of events."""

    def __init__(
        self,
        client: Client,
        reader: ObjectReader,
        events: EventRecorder | None = None,
        *,
        bind_seconds: float = 5.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.bind_seconds = bind_seconds
        """The time a bind may take, here and on the server, and a read of its pod."""
        self._client = client
        self._reader = reader
        self._events = events
        self._clock = clock or asyncio.get_running_loop().time
        self._open: dict[str, float] = {}
        self._patched_until = 0.0
        self._labels = BindingLabels(client, self._clock, seconds=bind_seconds)
        self._under_way = 0

    async def bind(self, pod: PodKey, node: str, record: PodRecord) -> BindOutcome:
        with self._counting():
            return await self._bind_labelled(pod, node, record)

    async def _bind_labelled(self, pod: PodKey, node: str, record: PodRecord) -> BindOutcome:
        """Bind the pod, with its labels before the Binding where the server drops them."""
        if not record.labels:
            return await self._bind(pod, node, record)
        try:
            self._limit()
        except UnreachedError as error:
            return WriteOutcome(WriteStatus.REFUSED, str(error))
        if await self._labels.copied() and self._labels.unproven:
            # Others wait for what this one pod shows.
            async with self._labels.proving:
                if self._labels.unproven:
                    outcome = await self._bind(pod, node, record)
                    if outcome.status is WriteStatus.DONE:
                        await self._prove(pod, record)
                    return outcome
        failed = None if await self._labels.copied() else await self._label(pod, record)
        return failed or await self._bind(pod, node, record)

    async def _bind(self, pod: PodKey, node: str, record: PodRecord) -> BindOutcome:
        limits = _NO_FENCE.limit(self.bind_seconds)
        try:
            limits = self._limit()
            await self._client.send(
                Call("create", "pods/binding", f"{_path(pod)}/binding", _timeout(limits)),
                _binding(pod, node, record),
                seconds=limits.send_seconds,
            )
        except RefusedError as error:
            outcome = await self._understand(error, pod, node, record)
        except UnreachedError as error:
            outcome = WriteOutcome(WriteStatus.REFUSED, str(error))
        except LostError as error:
            outcome = WriteOutcome(WriteStatus.UNKNOWN, str(error))
        else:
            outcome = WriteOutcome(WriteStatus.DONE)
        if outcome.status is WriteStatus.UNKNOWN:
            # The connection is gone by now, so the server has the request or never will.
            now = self._clock()
            self._open = {uid: over for uid, over in self._open.items() if over > now}
            self._open[pod.uid] = now + limits.server_seconds + _MARGIN_SECONDS
        return outcome

    async def _label(self, pod: PodKey, record: PodRecord) -> WriteOutcome | None:
        """Put the labels on a pod that waits; what went wrong, if the pod is not to be bound."""
        version = pod.version
        failure = "the pod keeps changing"
        for _ in range(_LABEL_ATTEMPTS):
            if version:
                labels = PodRecord(labels=record.labels)
                outcome = await self.annotate_pod(pod, labels, version=version)
                if outcome.status is WriteStatus.DONE:
                    return None
                if outcome.status is WriteStatus.GONE:
                    return outcome
                if outcome.pod is None:
                    failure = outcome.detail
                    break
                found: Pod | None = outcome.pod
            else:
                try:
                    found = await self.read_pod(pod.namespace, pod.name)
                except KubeError as error:
                    failure = str(error)
                    break
            if found is None or found.uid != pod.uid or found.node is not None:
                # The bind will be refused, and says what became of the pod.
                return None
            version = found.version
        return WriteOutcome(WriteStatus.REFUSED, f"not bound, for its labels: {failure}")

    async def _prove(self, pod: PodKey, record: PodRecord) -> None:
        """Look whether a Binding brought its labels, and bring them if it did not."""
        try:
            found = await self._find(pod.namespace, pod.name)
        except KubeError:
            return
        if found is None or found.pod.uid != pod.uid:
            return
        arrived = _within(record.labels, found.body.metadata.labels)
        self._labels.prove(arrived=arrived)
        if not arrived:
            await self.annotate_pod(pod, PodRecord(labels=record.labels))

    async def settle_bind(
        self, pod: PodKey, node: str, record: PodRecord, *, seconds: float
    ) -> BindOutcome:
        end = self._clock() + seconds
        looks = 0
        while True:
            looks += 1
            outcome = await self._judge(pod, node, record)
            left = end - self._clock()
            if outcome.status is not WriteStatus.UNKNOWN:
                self._open.pop(pod.uid, None)
                return outcome
            if left <= 0:
                return outcome
            delay = _LOOKS.delay(looks, self._client.chance.random())
            await self._client.sleep(min(left, delay))

    async def annotate_pod(
        self, pod: PodKey, record: PodRecord, *, version: int | None = None
    ) -> WriteOutcome:
        with self._counting():
            outcome = await self._annotate(pod, record, version)
        if outcome.status is WriteStatus.UNKNOWN:
            self._patched_until = self._clock() + self.bind_seconds + _MARGIN_SECONDS
        return outcome

    async def _annotate(self, pod: PodKey, record: PodRecord, version: int | None) -> WriteOutcome:
        metadata: dict[str, Any] = {"uid": pod.uid, **_write_record(record)}
        if version:
            metadata["resourceVersion"] = str(version)
        try:
            limits = self._limit()
            call = Call("patch", "pods", _path(pod), _timeout(limits))
            content = await self._client.send(
                call,
                {"metadata": metadata},
                content_type=MERGE_PATCH,
                seconds=limits.send_seconds,
            )
            found = self._reader.read_pod(decode_answer(_POD, call, content))
        except RefusedError as error:
            # A UID that is not the pod's is a conflict, or an attempt to change what is fixed.
            if error.missing or error.code in (409, 422):
                return await self._explain(error, pod)
            known = error.code == 429 or not error.retryable
            status = WriteStatus.REFUSED if known else WriteStatus.UNKNOWN
            return WriteOutcome(status, str(error))
        except UnreachedError as error:
            return WriteOutcome(WriteStatus.REFUSED, str(error))
        except LostError as error:
            return WriteOutcome(WriteStatus.UNKNOWN, str(error))
        return WriteOutcome(WriteStatus.DONE, "", found)

    async def find_blocked(self, pods: Sequence[PodKey]) -> dict[str, str]:
        with self._counting():
            return await find_blocked(self._client, pods)

    async def evict_pod(self, pod: PodKey) -> WriteOutcome:
        with self._counting():
            outcome = await evict_pod(self._client, pod, seconds=self.bind_seconds)
        if outcome.status is WriteStatus.UNKNOWN:
            self._patched_until = self._clock() + self.bind_seconds + _MARGIN_SECONDS
        return outcome

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        found = await self._find(namespace, name)
        return None if found is None else found.pod

    def post_event(self, pod: PodKey, event: PodEvent) -> None:
        if self._events is not None:
            self._events.post(pod, event)

    @property
    def idle(self) -> bool:
        """Whether no write is under way, and none may still be carried out."""
        return self._under_way == 0 and not self.unsettled

    @contextmanager
    def _counting(self) -> Iterator[None]:
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    @property
    def unsettled(self) -> bool:
        """Whether a write whose answer was lost may still be carried out."""
        now = self._clock()
        return now < self._patched_until or any(over > now for over in self._open.values())

    def _limit(self) -> WriteLimits:
        fence = self._client.fence or _NO_FENCE
        return fence.limit(self.bind_seconds)

    async def _understand(
        self, error: RefusedError, pod: PodKey, node: str, record: PodRecord
    ) -> BindOutcome:
        """What a refused bind means for the pod."""
        if error.missing:
            return WriteOutcome(WriteStatus.GONE, error.message)
        if error.code == 409:
            try:
                outcome = await self._look(pod, node, record)
            except KubeError:
                # The pod is surely not bound by this request; where it is can be read later.
                return WriteOutcome(WriteStatus.REFUSED, error.message)
            if outcome.status is WriteStatus.REFUSED:
                return WriteOutcome(WriteStatus.REFUSED, error.message, outcome.pod)
            return outcome
        if error.code == 429 or not error.retryable:
            return WriteOutcome(WriteStatus.REFUSED, str(error))
        return WriteOutcome(WriteStatus.UNKNOWN, str(error))

    async def _judge(self, pod: PodKey, node: str, record: PodRecord) -> BindOutcome:
        """How a bind ended, by the pod; unknown while the server may still carry it out."""
        looked_at = self._clock()
        try:
            outcome = await self._look(pod, node, record)
        except KubeError as error:
            return WriteOutcome(WriteStatus.UNKNOWN, str(error))
        pending = outcome.status is WriteStatus.REFUSED
        if pending and looked_at < self._open.get(pod.uid, 0.0):
            return WriteOutcome(WriteStatus.UNKNOWN, "the pod is not bound yet", outcome.pod)
        return outcome

    async def _look(self, pod: PodKey, node: str, record: PodRecord) -> BindOutcome:
        """How a bind ended, by the pod as it is now."""
        found = await self._find(pod.namespace, pod.name)
        if found is None:
            return WriteOutcome(WriteStatus.GONE, f"pod {pod.namespace}/{pod.name} is gone")
        if found.pod.uid != pod.uid:
            words = f"pod {pod.namespace}/{pod.name} is another now: {found.pod.uid}"
            return WriteOutcome(WriteStatus.GONE, words)
        place = found.pod.node
        if place is None:
            if found.pod.deleting:
                return WriteOutcome(WriteStatus.GONE, "the pod is being deleted", found.pod)
            return WriteOutcome(WriteStatus.REFUSED, "the pod is not bound", found.pod)
        if place != node:
            return WriteOutcome(WriteStatus.CONFLICT, f"the pod is on node {place}", found.pod)
        if carries(found.body.metadata, record):
            return WriteOutcome(WriteStatus.REPEATED, "", found.pod)
        words = f"the pod is on node {place} with another record"
        return WriteOutcome(WriteStatus.OTHER_RECORD, words, found.pod)

    async def _find(self, namespace: str, name: str) -> _Found | None:
        path = pod_path(namespace, name)
        try:
            # Whoever waits for a bind waits for this as well, however often it is retried.
            async with asyncio.timeout(self.bind_seconds):
                body = await read_one(self._client, Call("get", "pods", path), PodBody)
        except TimeoutError as error:
            raise LostError(f"no answer to get {path} in {self.bind_seconds:g} s") from error
        return None if body is None else _Found(body, self._reader.read_pod(body))

    async def _explain(self, error: RefusedError, pod: PodKey) -> WriteOutcome:
        """Whether a patch was refused because its pod is gone."""
        try:
            found = None if error.missing else await self._find(pod.namespace, pod.name)
        except KubeError:
            return WriteOutcome(WriteStatus.REFUSED, str(error))
        if found is None or found.pod.uid != pod.uid:
            return WriteOutcome(WriteStatus.GONE, error.message)
        return WriteOutcome(WriteStatus.REFUSED, str(error), found.pod)


def carries(metadata: Metadata, record: PodRecord) -> bool:
    """Whether an object has all these annotations and labels, with these values."""
    return _within(record.annotations, metadata.annotations) and _within(
        record.labels, metadata.labels
    )


def _within(wanted: Mapping[str, str], given: Mapping[str, str] | None) -> bool:
    return all((given or {}).get(key) == value for key, value in wanted.items())


def _timeout(limits: WriteLimits) -> dict[str, str]:
    """The server's own time limit for one request."""
    return {"timeout": f"{max(1, int(limits.server_seconds * 1000))}ms"}


def _path(pod: PodKey) -> str:
    return pod_path(pod.namespace, pod.name)


def _binding(pod: PodKey, node: str, record: PodRecord) -> dict[str, Any]:
    """The body of a bind; the UID in it keeps a namesake from being bound instead."""
    meant = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {**meant, **_write_record(record)},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def _write_record(record: PodRecord) -> dict[str, Any]:
    parts = {"annotations": dict(record.annotations), "labels": dict(record.labels)}
    return {key: part for key, part in parts.items() if part}
