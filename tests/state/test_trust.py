import asyncio
from contextlib import asynccontextmanager

import pytest

from conformance.bodies import config_map
from kube.lines import client
from slicewise.kube.errors import KubeError
from slicewise.model import SignatureState, TrustPolicy
from slicewise.state.trust import (
    SIGNING_SECRET,
    TRUST_CONFIGMAP,
    TrustWatch,
    change_keys,
    change_trust,
    read_keys,
    read_trust_document,
)
from slicewise.trust import SigningKey, StoredKey, TrustDocument, write_trust
from slicewise_playground.api.faults import InjectedFault
from slicewise_playground.cluster import Playground
from state.test_live import until

KEY = SigningKey(bytes(range(32)))
DOCUMENT = TrustDocument({KEY.id: KEY.public}, TrustPolicy(5, None, ("old-*",)))
NAMESPACE, NAME = TRUST_CONFIGMAP


@pytest.fixture
def playground():
    with Playground() as playground:
        yield playground


def publish(playground, document=DOCUMENT):
    body = config_map(NAME, write_trust(document), namespace=NAMESPACE)
    playground.create("configmaps", body)


@asynccontextmanager
async def watching(playground, heard=None):
    async with client(playground.url) as line:
        told = [] if heard is None else heard
        watch = TrustWatch(line, changed=told.append)
        task = asyncio.create_task(watch.run())
        try:
            async with asyncio.timeout(10):
                await watch.synced.wait()
            yield watch
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def test_published_keys_and_policy_are_followed(playground):
    async def follow():
        heard = []
        async with watching(playground, heard) as watch:
            await until(lambda: watch.problem and "does not exist" in watch.problem)
            publish(playground)
            await until(lambda: watch.readable)
            return watch, heard

    watch, heard = asyncio.run(follow())

    assert watch.store.policy == DOCUMENT.policy
    assert watch.store.verify("u", "t", KEY.sign("u", "t")) is SignatureState.VALID
    assert (watch.problem, heard) == (None, [None])


def test_mistake_is_reported_and_the_last_good_goes_on_counting(playground):
    async def follow():
        publish(playground)
        async with watching(playground) as watch:
            playground.patch("configmaps", NAME, {"data": {"keys": "["}}, namespace=NAMESPACE)
            await until(lambda: watch.problem)
            return watch

    watch = asyncio.run(follow())

    assert watch.readable
    assert "keys='[': expected a JSON object; what was last good" in watch.problem
    assert KEY.id in watch.store.keys


def test_deleted_configmap_keeps_the_last_good(playground):
    async def follow():
        publish(playground)
        async with watching(playground) as watch:
            playground.delete("configmaps", NAME, namespace=NAMESPACE)
            await until(lambda: watch.problem)
            return watch

    watch = asyncio.run(follow())

    assert "was deleted" in watch.problem
    assert KEY.id in watch.store.keys


def add(key):
    return lambda before: TrustDocument({**before.keys, key.id: key.public}, before.policy)


def test_writers_that_race_lose_nothing_of_each_other(playground):
    keys = [SigningKey(bytes([at] * 32)) for at in range(4)]

    async def race():
        async with client(playground.url) as line:
            await asyncio.gather(*(change_trust(line, TRUST_CONFIGMAP, add(key)) for key in keys))
            return await read_trust_document(line, TRUST_CONFIGMAP)

    assert asyncio.run(race()).keys == {key.id: key.public for key in keys}


def test_replicas_that_start_together_agree_on_one_key(playground):
    def make(before):
        return before or (StoredKey(SigningKey.generate(), 7),)

    async def race():
        async with client(playground.url) as line:
            made = await asyncio.gather(
                *(change_keys(line, SIGNING_SECRET, make) for _ in range(4))
            )
            return {keys[0].id for keys in made}, await read_keys(line, SIGNING_SECRET)

    chosen, stored = asyncio.run(race())

    assert chosen == {stored[0].id}


def test_missing_right_is_one_error_that_says_what_to_allow(playground):
    playground.faults.add(InjectedFault(verb="create", resource="secrets", code=403))

    async def create():
        async with client(playground.url) as line:
            await change_keys(line, SIGNING_SECRET, lambda _: (StoredKey(KEY, 7),))

    with pytest.raises(KubeError, match=r"cannot change Secret kube-system/slicewise-signing.*"
                       r"allow get, create and update of it"):  # fmt: skip
        asyncio.run(create())
