"""The same claims against the real API server: few and short."""

import asyncio
import uuid

import pytest

from conformance.bodies import pod
from kube.lines import KEEP, client, following
from slicewise.kube import sources
from slicewise.kube.events import EventRecorder
from slicewise.kube.kubeconfig import read_kubeconfig
from slicewise.kube.leading.lease import Election
from slicewise.kube.objects import ObjectReader
from slicewise.kube.outcomes import PodEvent, PodName, WriteStatus
from slicewise.kube.pod_writer import PodWriter
from slicewise.model import PodRecord

pytestmark = pytest.mark.cluster

MARKS = PodRecord({"gpu": "0", "other": "1"}, {"slicewise.io/bound": "yes"})
# Nobody schedules these pods but the test.
UNSCHEDULED = {"schedulerName": "nobody"}


@pytest.fixture
def space(control_plane):
    """A namespace of the test's own, with its pods' path."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    with control_plane.api() as api:
        api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        api.wait_for(f"/api/v1/namespaces/{name}/serviceaccounts/default", lambda _: True)
    yield name
    with control_plane.api() as api:
        api.delete(f"/api/v1/namespaces/{name}")


class Pods:
    """Pods of one namespace, made and deleted by hand."""

    def __init__(self, plane, space):
        self._plane, self.space = plane, space
        self._path = f"/api/v1/namespaces/{space}/pods"

    def make(self, *names):
        with self._plane.api() as api:
            made = [api.create(self._path, pod(name, **UNSCHEDULED)) for name in names]
        return [
            PodName(each["metadata"]["uid"], self.space, each["metadata"]["name"]) for each in made
        ]

    def get(self, name):
        with self._plane.api() as api:
            return api.get(f"{self._path}/{name}")

    def delete(self, name):
        with self._plane.api() as api:
            api.delete(f"{self._path}/{name}", gracePeriodSeconds=0)


@pytest.fixture
def pods(control_plane, space):
    return Pods(control_plane, space)


def access(plane):
    return read_kubeconfig(plane.admin.path)


def of_namespace(space):
    return sources.pods(ObjectReader(KEEP), f"metadata.namespace={space}")


def test_pods_are_listed_in_pages_and_followed(control_plane, pods):
    pods.make(*"abcde")

    async def claim():
        source = of_namespace(pods.space)
        async with following(access(control_plane), source) as (informer, follower):
            assert follower.names == list("abcde")
            pods.make("f")
            await follower.until(lambda: "f" in follower.names)
            pods.delete("a")
            await follower.until(lambda: follower.names == list("bcdef"))
            assert informer.lists == 1

    asyncio.run(claim())


def test_expired_version_is_recovered_by_listing_again(control_plane, pods):
    # A server that was restarted keeps no history of what came before.
    control_plane.stop_apiserver()
    control_plane.start_apiserver()
    pods.make("a", "b")

    async def claim():
        source = of_namespace(pods.space)
        async with following(access(control_plane), source, version="1") as (informer, follower):
            assert follower.names == ["a", "b"]
            assert informer.expiries == 1

    asyncio.run(claim())


def test_informer_outlives_a_killed_api_server(control_plane, pods):
    pods.make("a", "b")

    async def claim():
        source = of_namespace(pods.space)
        async with following(access(control_plane), source) as (_, follower):
            await asyncio.to_thread(control_plane.stop_apiserver)
            await asyncio.to_thread(control_plane.start_apiserver)
            await asyncio.to_thread(pods.delete, "a")
            await asyncio.to_thread(pods.make, "c")
            async with asyncio.timeout(60):
                while follower.names != ["b", "c"]:
                    await asyncio.sleep(0.05)

    asyncio.run(claim())


def test_binding_carries_marks_and_means_what_it_says(control_plane, pods):
    one, two, old = pods.make("one", "two", "old")
    pods.delete("old")
    pods.make("old")

    async def claim():
        async with client(access(control_plane)) as line:
            writes = PodWriter(line, ObjectReader(KEEP))
            return [
                (await writes.bind(one, "n1", MARKS)).status,
                (await writes.bind(one, "n1", MARKS)).status,
                (await writes.bind(one, "n1", PodRecord({"gpu": "1"}))).status,
                (await writes.bind(one, "n2", MARKS)).status,
                (await writes.bind(old, "n1", MARKS)).status,
                (await writes.bind(PodName("u", pods.space, "none"), "n1", MARKS)).status,
                (await writes.settle_bind(one, "n1", MARKS, seconds=5)).status,
                (await writes.settle_bind(two, "n1", MARKS, seconds=5)).status,
            ]

    assert asyncio.run(claim()) == [
        WriteStatus.DONE,
        WriteStatus.REPEATED,
        WriteStatus.OTHER_RECORD,
        WriteStatus.CONFLICT,
        WriteStatus.GONE,
        WriteStatus.GONE,
        WriteStatus.REPEATED,
        WriteStatus.REFUSED,
    ]
    bound = pods.get("one")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == MARKS.annotations
    assert bound["metadata"]["labels"].items() >= MARKS.labels.items()


def test_record_is_put_on_the_pod_that_is_meant(control_plane, pods):
    one, old = pods.make("one", "old")
    pods.delete("old")
    pods.make("old")

    async def claim():
        async with client(access(control_plane)) as line:
            writes = PodWriter(line, ObjectReader(KEEP))
            put = await writes.annotate_pod(one, MARKS)
            other = await writes.annotate_pod(old, MARKS)
            return put.status, dict(put.pod.annotations), other.status

    assert asyncio.run(claim()) == (WriteStatus.DONE, {"gpu": "0"}, WriteStatus.GONE)
    assert pods.get("one")["metadata"]["annotations"] == MARKS.annotations


def test_events_are_stored_and_counted(control_plane, pods):
    (one,) = pods.make("one")
    event = PodEvent(reason="GpuAssigned", note="gpu 0")

    async def claim():
        async with client(access(control_plane)) as line:
            events = EventRecorder(line)
            task = asyncio.create_task(events.run())
            for count in (1, 2):
                events.post(one, event)
                await asyncio.to_thread(wait_for_count, control_plane, pods.space, count)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert events.dropped == 0

    asyncio.run(claim())


def wait_for_count(plane, space, count):
    path = f"/api/v1/namespaces/{space}/events"
    with plane.api() as api:
        for _ in range(200):
            found = api.get(path, fieldSelector="reason=GpuAssigned")["items"]
            if [each["count"] for each in found] == [count]:
                return
    raise AssertionError(f"the event never counted {count}: {found}")


def test_lease_is_held_by_one_and_handed_over(control_plane, space):
    async def claim():
        async with client(access(control_plane)) as line:
            one, two = (Election(line, (space, "lease"), each) for each in ("one", "two"))
            for election in (one, two, one, two):
                await election._try()
            held = (one.leading, two.leading)
            await one.release()
            await two._try()
            return held, (one.leading, two.leading)

    assert asyncio.run(claim()) == ((True, False), (False, True))
