import asyncio
import json

import pytest

from metricsapi.scene import PREFIX, SECOND, TABLE, Lines, Scene, read
from reports.values import gpu, node, pod
from slicewise.httpd import Stream
from slicewise.metricsapi.broadcaster import ObjectEvent, WatchQueue
from slicewise.metricsapi.documents import make_node_object
from slicewise.metricsapi.registry import STEP
from slicewise.reports import ContainerReport, DeviceReport, MeasuredUse, PodReport

PODS = f"{PREFIX}/podresources"
NODES = f"{PREFIX}/gpuinfos"
ACCEPT = [("accept", TABLE)]


def run(scene):
    asyncio.run(asyncio.wait_for(scene, 60))


def test_first_release_tells_all_pods_then_changes_then_ends_of_pods():
    async def watching():
        scene = Scene()
        session = scene.tell(node(pods=[pod("a"), pod("b")]))
        lines = Lines(await scene.ask(PODS, watch="true"))
        told = [await lines.next(), await lines.next()]
        session.replace(node(pods=[pod("b")]))
        gone = await lines.next()
        await lines.close()

        assert [line["Type"] for line in told] == ["SYNCED", "SYNCED"]
        assert list(gone) == ["Type", "Object"]
        assert gone["Type"] == "DELETED"
        assert gone["Object"]["spec"] == {"pod_name": "a", "pod_namespace": "ml"}
        assert gone["Object"]["status"]["last_changed_time"]
        assert scene.broadcaster.watching == 0

    run(watching())


def test_second_release_names_its_objects_in_the_lines():
    async def watching():
        scene = Scene()
        session = scene.tell(node(pods=[pod("a")]))
        pods = Lines(await scene.ask(f"{SECOND}/gpupods", watch="true"))
        nodes = Lines(await scene.ask(f"{SECOND}/gpunodes", watch="true"))
        first, gpus = await pods.next(), await nodes.next()
        session.replace(node(pods=[]))
        gone = await pods.next()
        await pods.close()
        await nodes.close()

        assert list(first) == ["GpuPod", "Type"]
        assert list(gpus) == ["GpuNode", "Type"]
        assert gone["Type"] == "DELETED"
        assert gone["GpuPod"]["metadata"]["name"] == first["GpuPod"]["metadata"]["name"]

    run(watching())


@pytest.mark.parametrize(
    ("path", "query"),
    [
        pytest.param(PODS, {"watch": "1"}, id="only-the-word-true-watches"),
        pytest.param(NODES, {"watch": "true"}, id="gpuinfos-cannot-be-watched"),
    ],
)
def test_first_release_lists_where_it_does_not_watch(path, query):
    async def asking():
        answer = await Scene().ask(path, **query)

        assert not isinstance(answer, Stream)
        assert json.loads(answer.body)["kind"] == "List"

    run(asking())


def test_use_alone_wakes_no_watcher():
    async def watching():
        scene = Scene()
        session = scene.tell(node(pods=[pod("a")]))
        lines = Lines(await scene.ask(PODS, watch="true"))
        await lines.next()
        device = DeviceReport(gpu="GPU-a", use=MeasuredUse(memory_mib=1, cores=1))
        main = ContainerReport(name="main", devices=(device,))
        used = PodReport(namespace="ml", name="a", containers=(main,))
        session.replace(node(pods=[used]))
        session.replace(node(pods=[used, pod("b")]))

        assert (await lines.next())["Object"]["spec"]["pod_name"] == "b"
        await lines.close()

    run(watching())


def test_kubectl_watches_tables_from_the_version_of_its_list():
    async def watching():
        scene = Scene()
        session = scene.tell(node(pods=[pod("a")]))
        listed = json.loads((await scene.ask(PODS, headers=ACCEPT, limit="500")).body)
        session.replace(node(pods=[pod("a"), pod("b")]))
        version = listed["metadata"]["resourceVersion"]
        answer = await scene.ask(PODS, headers=ACCEPT, watch="true", resourceVersion=version)
        lines = Lines(answer)
        missed = await lines.next()
        session.replace(node(pods=[pod("b")]))
        gone = await lines.next()
        await lines.close()

        assert listed["kind"] == "Table"
        assert [row["cells"][1] for row in listed["rows"]] == ["a"]
        assert (missed["type"], missed["object"]["kind"]) == ("ADDED", "Table")
        assert missed["object"]["rows"][0]["cells"][1] == "b"
        assert (gone["type"], gone["object"]["rows"][0]["cells"][1]) == ("DELETED", "a")

    run(watching())


@pytest.mark.parametrize("version", ["1", "99999999999999999999", "old"])
def test_version_of_another_life_is_expired(version):
    async def watching():
        scene = Scene()
        scene.tell(node())
        lines = Lines(await scene.ask(NODES, watch="1", resourceVersion=version))

        line = await lines.next()

        assert line["type"] == "ERROR"
        assert (line["object"]["code"], line["object"]["reason"]) == (410, "Expired")

    run(watching())


def test_history_that_was_dropped_is_expired_and_what_is_left_is_not():
    async def watching():
        scene = Scene(history=2)
        session = scene.tell(node())
        before = scene.registry.revision
        for name in ("a", "b", "c"):
            session.replace(node(pods=[pod(name)]))
        old = Lines(await scene.ask(PODS, watch="1", resourceVersion=str(before)))
        assert (await old.next())["type"] == "ERROR"
        events = scene.broadcaster.since("pods", scene.registry.revision - STEP)
        assert len(events) <= 1

    run(watching())


def test_version_of_another_replica_is_expired_however_close_it_is():
    """Two replicas that started in the same millisecond, each after a change of its own."""

    async def watching():
        scene, other = Scene(), Scene()
        for each in (scene, other):
            each.tell(node(pods=[pod("a")]))
        for step in (-STEP, 0):
            there = other.registry.revision + step
            line = await Lines(await scene.ask(PODS, watch="1", resourceVersion=str(there))).next()
            assert (line["object"]["code"], line["object"]["reason"]) == (410, "Expired")

    run(watching())


def test_streaming_list_ends_with_its_bookmark():
    async def watching():
        scene = Scene()
        scene.tell(node(pods=[pod("a")]))
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        lines = Lines(await scene.ask(PODS, watch="1", allowWatchBookmarks="true", **query))

        first, end = await lines.next(), await lines.next()
        await lines.close()

        assert first["type"] == "ADDED"
        assert end["type"] == "BOOKMARK"
        assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}

    run(watching())


def test_watch_of_kubernetes_ends_after_its_time():
    async def watching():
        scene = Scene()
        answer = await scene.ask(PODS, watch="1", timeoutSeconds="1")

        async with asyncio.timeout(20):
            chunks = [chunk async for chunk in answer.chunks]

        assert chunks == []
        assert scene.broadcaster.watching == 0

    run(watching())


def test_slow_watcher_is_cut_off_and_the_others_are_not():
    async def watching():
        scene, seen = Scene(queue=10), []
        session = scene.tell(node(pods=[pod("first")]))
        slow = await scene.ask(PODS, watch="true")
        # The slow one has begun and then reads no more.
        await anext(slow.chunks)

        async def read_on(lines):
            while True:
                seen.append((await lines.next())["Object"]["spec"]["pod_name"])

        reading = asyncio.create_task(read_on(Lines(await scene.ask(PODS, watch="true"))))
        for at in range(30):
            session.replace(node(pods=[pod(f"p{at}")]))
            async with asyncio.timeout(20):
                while f"p{at}" not in seen:
                    await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

        assert slow.cut.is_set()

    run(watching())


def test_watcher_that_overran_is_given_nothing_more():
    async def filling():
        scene = Scene()
        scene.tell(node())
        view = make_node_object(scene.registry, scene.registry.records["n1"])
        watcher = WatchQueue(limit=2)
        for at in range(4):
            watcher.put(ObjectEvent(at, "ADDED", view))

        assert watcher.overrun.is_set()
        assert await watcher.take() == []

    run(filling())


def test_event_is_encoded_once_for_all_who_watch_alike():
    async def watching():
        scene = Scene()
        session = scene.tell(node())
        watchers = [Lines(await scene.ask(PODS, watch="true")) for _ in range(3)]
        tasks = [asyncio.create_task(each.next()) for each in watchers]
        while scene.broadcaster.watching < 3:
            await asyncio.sleep(0)
        before = scene.registry.revision
        session.replace(node(pods=[pod("a")]))
        lines = await asyncio.gather(*tasks)
        (event,) = scene.broadcaster.since("pods", before)

        assert lines[0] == lines[1] == lines[2]
        assert len(event.written) == 1
        for each in watchers:
            await each.close()

    run(watching())


def test_objects_for_kubernetes_clients_have_metadata_and_group():
    scene = Scene()
    scene.tell(node(pods=[pod("a")]))

    listed = read(scene, PODS, limit="500")

    assert listed["kind"] == "PodResourceList"
    assert listed["apiVersion"] == "metrics.nvidia.com/v1alpha1"
    assert listed["items"][0]["metadata"]["name"].startswith("ml-a-")
    assert listed["items"][0]["apiVersion"] == "metrics.nvidia.com/v1alpha1"


@pytest.mark.parametrize(
    ("query", "names"),
    [
        pytest.param({"fieldSelector": "metadata.name=n2"}, ["n2"], id="by-name"),
        pytest.param({"fieldSelector": "metadata.name!=n2"}, ["n1"], id="not-by-name"),
        pytest.param({"labelSelector": "a=b"}, [], id="by-label"),
    ],
)
def test_selectors_choose(query, names):
    scene = Scene()
    scene.tell(node("n1"))
    scene.tell(node("n2"))

    items = read(scene, NODES, limit="500", **query)["items"]

    assert [item["metadata"]["name"] for item in items] == names


@pytest.mark.parametrize("query", [{"fieldSelector": "spec.node=x"}, {"labelSelector": "a in (b)"}])
def test_selector_that_cannot_be_served_is_refused(query):
    async def asking():
        answer = await Scene().ask(NODES, limit="500", **query)

        assert answer.status == 400
        assert json.loads(answer.body)["reason"] == "BadRequest"

    run(asking())


@pytest.mark.parametrize(
    ("include", "kind"),
    [("Metadata", "PartialObjectMetadata"), ("Object", "GpuInfo"), ("None", None)],
)
def test_rows_carry_as_much_of_the_object_as_was_asked_for(include, kind):
    scene = Scene()
    scene.tell(node(gpus=(gpu(memory_mib=15360, healthy=False, why="XID 79"),)))

    table = read(scene, NODES, headers=ACCEPT, includeObject=include)

    row = table["rows"][0]
    assert len(row["cells"]) == len(table["columnDefinitions"])
    assert row["cells"][:6] == ["n1", "True", 1, 0, 1, "?/15360"]
    assert "XID 79" in row["cells"][-1]
    assert row.get("object", {}).get("kind") == kind
