import asyncio

import pytest

from fakes.object_store import ObjectStore
from slicewise.kube.leading.leader_endpoints import Endpoint, LeaderEndpoints
from slicewise.kube.leading.lease import EPOCH
from slicewise.kube.outcomes import PodName

PLACE = ("gpu", "slicewise-extender")
PATH = "/apis/discovery.k8s.io/v1/namespaces/gpu/endpointslices/slicewise-extender-leader"


def write(store, address, epoch, port=3456):
    here = Endpoint(PodName("uid-1", "gpu", "extender-1"), address, port)
    endpoints = LeaderEndpoints(store, [PLACE], here, epoch=lambda: epoch)
    asyncio.run(endpoints.write(PLACE, epoch))


def target(store):
    found = store.objects[PATH]
    return found["endpoints"][0]["addresses"][0], found["metadata"]["annotations"][EPOCH]


@pytest.mark.parametrize(("address", "kind"), [("10.1.2.3", "IPv4"), ("fd00::7", "IPv6")])
def test_service_leads_to_the_leader_and_goes_with_its_pod(address, kind):
    store = ObjectStore()
    write(store, address, 7)

    found = store.objects[PATH]
    assert found["metadata"]["labels"]["kubernetes.io/service-name"] == "slicewise-extender"
    assert found["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    assert (found["addressType"], found["ports"][0]["port"]) == (kind, 3456)
    assert target(store) == (address, "7")


def test_next_leader_takes_the_service_over():
    store = ObjectStore()
    write(store, "10.0.0.1", 7)
    write(store, "10.0.0.2", 8)

    assert target(store) == ("10.0.0.2", "8")


def test_former_leader_leaves_a_newer_one_alone():
    store = ObjectStore()
    write(store, "10.0.0.2", 8)
    write(store, "10.0.0.1", 7)

    assert target(store) == ("10.0.0.2", "8")


def test_slice_that_is_right_is_not_written_again():
    store = ObjectStore()
    write(store, "10.0.0.1", 7)
    write(store, "10.0.0.1", 7)

    assert [verb for verb, _ in store.writes] == ["create"]


def test_only_who_decides_writes_and_looks_again_after_a_while():
    store, epochs, paused = ObjectStore(), [None, 7, 7], []

    async def sleep(seconds):
        paused.append(seconds)
        if len(paused) == 1:
            assert not store.objects
        if len(paused) == 5:
            store.objects.pop(PATH)
        if len(paused) > 60:
            raise asyncio.CancelledError

    here = Endpoint(PodName("u", "gpu", "p"), "10.0.0.1", 1)
    running = LeaderEndpoints(
        store, [PLACE], here, epoch=lambda: epochs.pop(0) if len(epochs) > 1 else 7, sleep=sleep
    )
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(running.run())

    assert [verb for verb, _ in store.writes] == ["create", "create"]
