"""Real clients against the embedded API: the asyncio client of the Kubernetes project."""

import asyncio

import pytest
from kubernetes_asyncio import client as k8s
from kubernetes_asyncio import config, watch

from conformance.bodies import binding, pod
from slicewise_playground.cluster import Playground

NAMESPACE = "default"


@pytest.fixture
def run(tmp_path):
    """Runs one scenario with a CoreV1Api on a fresh playground."""

    def run_scenario(scenario):
        async def inside(path):
            settings = k8s.Configuration()
            await config.load_kube_config(str(path), client_configuration=settings)
            async with k8s.ApiClient(settings) as connection:
                return await scenario(k8s.CoreV1Api(connection))

        with Playground() as playground:
            path = playground.write_kubeconfig(tmp_path / "kubeconfig")
            return asyncio.run(inside(path))

    return run_scenario


def test_list_and_create(run):
    async def scenario(core):
        created = await core.create_namespaced_pod(NAMESPACE, pod(limits={"cpu": "1000m"}))
        listed = await core.list_namespaced_pod(NAMESPACE, limit=1)
        return created, listed

    created, listed = run(scenario)

    assert created.metadata.uid
    assert [row.metadata.name for row in listed.items] == ["a"]
    assert listed.items[0].spec.containers[0].resources.limits == {"cpu": "1"}


def test_patch_and_replace(run):
    async def scenario(core):
        await core.create_namespaced_pod(NAMESPACE, pod())
        body = {"metadata": {"annotations": {"gpu": "0"}}}
        patched = await core.patch_namespaced_pod("a", NAMESPACE, body)
        patched.metadata.labels = {"x": "y"}
        return await core.replace_namespaced_pod("a", NAMESPACE, patched)

    replaced = run(scenario)

    assert replaced.metadata.annotations == {"gpu": "0"}
    assert replaced.metadata.labels == {"x": "y"}


def test_bind_and_conflict(run):
    async def scenario(core):
        await core.create_namespaced_pod(NAMESPACE, pod())
        body = binding("a", "n1", annotations={"gpu": "0"})
        call = core.create_namespaced_pod_binding
        first = await call("a", NAMESPACE, body, _preload_content=False)
        second = await call("a", NAMESPACE, body, _preload_content=False)
        return first.status, second.status, await core.read_namespaced_pod("a", NAMESPACE)

    first, second, bound = run(scenario)

    assert (first, second) == (201, 409)
    assert bound.spec.node_name == "n1"
    assert bound.metadata.annotations == {"gpu": "0"}


def test_watch_sees_what_happens(run):
    async def scenario(core):
        seen = []
        listed = await core.list_namespaced_pod(NAMESPACE)
        async with watch.Watch() as stream:
            events = stream.stream(
                core.list_namespaced_pod,
                NAMESPACE,
                resource_version=listed.metadata.resource_version,
                timeout_seconds=5,
            )
            await core.create_namespaced_pod(NAMESPACE, pod())
            await core.delete_namespaced_pod("a", NAMESPACE)
            async for event in events:
                seen.append((event["type"], event["object"].metadata.name))
                if event["type"] == "DELETED":
                    break
        return seen

    assert run(scenario) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_absent_pod_raises_404(run):
    async def scenario(core):
        with pytest.raises(k8s.ApiException) as caught:
            await core.read_namespaced_pod("nobody", NAMESPACE)
        return caught.value.status

    assert run(scenario) == 404
