import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import builders
from conformance.bodies import config_map
from kube.lines import client
from slicewise.dialects import ALLOCATION, SIGNATURE
from slicewise.extender.signing import SigningService, SigningSettings
from slicewise.kube.errors import KubeError
from slicewise.model import TrustPolicy
from slicewise.state.trust import (
    SIGNING_SECRET,
    TRUST_CONFIGMAP,
    TrustWatch,
    change_keys,
    change_trust,
    read_keys,
    read_trust_document,
)
from slicewise.trust import SigningKey, StoredKey, TrustDocument, TrustError
from slicewise_playground.api.faults import InjectedFault
from slicewise_playground.cluster import Playground
from state.test_live import until

OTHERS = SigningKey(bytes(range(32)))


@pytest.fixture(scope="module")
def server():
    with Playground() as playground:
        yield playground


@pytest.fixture
def playground(server):
    yield server
    server.faults.clear()
    for resource, (namespace, name) in (
        ("secrets", SIGNING_SECRET),
        ("configmaps", TRUST_CONFIGMAP),
    ):
        if any(each["metadata"]["name"] == name for each in server.objects(resource, namespace)):
            server.delete(resource, name, namespace=namespace)


class Replica:
    """A signing service with its watch, a clock that tests move, and leadership."""

    def __init__(self, line, **settings):
        self.now, self.leads, self.line = 1_000_000.0, True, line
        self.watch = TrustWatch(line)
        self.service = SigningService(
            line,
            self.watch,
            SigningSettings(**settings),
            leads=lambda: self.leads,
            wall=lambda: self.now,
        )
        self.service.pods = lambda: self.pods
        self.pods = ()

    async def look(self):
        """Look once, after everything that was written has been heard."""
        await self.service.look()
        document = await read_trust_document(self.line, TRUST_CONFIGMAP)
        if document is not None:
            await until(lambda: self.watch.store.document == document)
        self.now += 5
        await self.service.look()

    @property
    def published(self):
        return set(self.watch.store.document.keys)

    @property
    def current(self):
        key = self.service.keys.current
        return None if key is None else key.id


@asynccontextmanager
async def replica(playground, **settings):
    async with client(playground.url) as line:
        made = Replica(line, **settings)
        task = asyncio.create_task(made.watch.run())
        try:
            async with asyncio.timeout(10):
                await made.watch.synced.wait()
            yield made
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def rotate(line, at=1_000_100):
    made = StoredKey(SigningKey.generate(), at)
    await change_keys(line, SIGNING_SECRET, lambda keys: (*keys, made))
    return made.id


def test_first_leader_makes_a_key_and_publishes_it(playground):
    async def start():
        async with replica(playground) as one:
            before = one.service.hindrance
            await one.look()
            return before, one, await read_keys(one.line, SIGNING_SECRET)

    before, one, (stored,) = asyncio.run(start())

    assert "does not exist" in before or "not been read" in before
    assert one.service.hindrance is None
    assert one.current == stored.id
    assert one.published == {stored.id}


def test_follower_publishes_nothing_and_signs_with_what_the_leader_published(playground):
    async def start():
        async with replica(playground) as leader, replica(playground) as follower:
            follower.leads = False
            await follower.look()
            alone = follower.published
            await leader.look()
            await until(lambda: follower.published)
            await follower.look()
            return alone, leader, follower

    alone, leader, follower = asyncio.run(start())

    assert alone == set()
    assert follower.current == leader.current


def test_keys_of_others_and_the_policy_are_kept(playground):
    policy = TrustPolicy(5, 6, ("old-*",))

    async def start():
        async with replica(playground) as one:
            others = TrustDocument({OTHERS.id: OTHERS.public}, policy)
            await change_trust(one.line, TRUST_CONFIGMAP, lambda _: others)
            await one.look()
            return one

    one = asyncio.run(start())

    assert one.published == {OTHERS.id, one.current}
    assert one.watch.store.policy == policy


def test_rotation_publishes_first_signs_after_the_overlap_and_takes_back_last(playground):
    async def turn():
        seen = []
        async with replica(playground) as one:
            await one.look()
            old = one.current
            signature = one.service.keys.require().sign("u0", "{}")
            one.pods = (builders.pod(annotations={ALLOCATION: "{}", SIGNATURE: signature}),)
            one.now += 600
            new = await rotate(one.line, int(one.now))
            await one.look()
            seen.append((one.current, one.published))
            one.now += 60
            await one.look()
            seen.append((one.current, one.published))
            one.now += 600
            await one.look()
            seen.append((one.current, one.published))
            one.pods = ()
            await one.look()
            seen.append((one.current, one.published))
            return old, new, seen, await read_keys(one.line, SIGNING_SECRET)

    old, new, seen, stored = asyncio.run(turn())

    assert seen == [(old, {old, new}), (new, {old, new}), (new, {old, new}), (new, {new})]
    assert [each.id for each in stored] == [new]


@pytest.mark.parametrize("text", ["{}", None])
def test_key_that_a_tenant_only_names_is_taken_back(playground, text):
    async def turn():
        async with replica(playground) as one:
            await one.look()
            old, signature = one.current, one.service.keys.require().sign("u0", "{}")
            marks = {SIGNATURE: signature} if text is None else {ALLOCATION: text}
            # A signature of another pod, one of nothing, and a name alone.
            forged = {SIGNATURE: signature, **marks}, {ALLOCATION: "{}", SIGNATURE: f"{old}.x"}
            one.pods = tuple(builders.pod(uid="u1", annotations=each) for each in forged)
            one.now += 600
            new = await rotate(one.line, int(one.now))
            await one.look()
            one.now += 700
            await one.look()
            return one.published == {new}

    assert asyncio.run(turn())


def test_old_key_stays_while_not_all_pods_are_known(playground):
    async def turn():
        async with replica(playground) as one:
            await one.look()
            one.pods = None
            await rotate(one.line)
            await one.look()
            one.now += 600
            await one.look()
            return one

    assert len(asyncio.run(turn()).published) == 2


def test_deleted_configmap_is_made_again_as_it_was(playground):
    namespace, name = TRUST_CONFIGMAP

    async def lose():
        async with replica(playground) as one:
            await one.look()
            nodes = TrustPolicy(original_nodes=("old-*",))
            change = lambda before: replace(before, policy=nodes)  # noqa: E731
            await change_trust(one.line, TRUST_CONFIGMAP, change)
            await until(lambda: one.watch.store.policy == nodes)
            playground.delete("configmaps", name, namespace=namespace)
            await until(lambda: one.watch.missing)
            await one.service.look()
            return one, await read_trust_document(one.line, TRUST_CONFIGMAP)

    one, document = asyncio.run(lose())

    assert set(document.keys) == {one.current}
    assert document.policy.original_nodes == ("old-*",)


@pytest.mark.parametrize(
    ("before", "began"),
    [
        pytest.param(TrustPolicy(), 1_000_000, id="never"),
        pytest.param(TrustPolicy(5, 6), 5, id="ended"),
        pytest.param(TrustPolicy(5), 5, id="open"),
    ],
)
def test_flag_begins_a_takeover_only_if_none_was_ever_begun(playground, before, began):
    async def start():
        async with replica(playground, take_over=True) as one:
            document = TrustDocument({}, before)
            await change_trust(one.line, TRUST_CONFIGMAP, lambda _: document)
            await until(lambda: one.watch.readable)
            await one.look()
            return one.watch.store.policy

    assert asyncio.run(start()).takeover_began == began


def test_unreadable_configmap_at_the_start_is_why_nothing_is_decided(playground):
    namespace, name = TRUST_CONFIGMAP
    playground.create("configmaps", config_map(name, {"keys": "["}, namespace=namespace))

    async def start():
        async with replica(playground) as one:
            with pytest.raises(TrustError, match=r"slicewise-trust: keys='\['"):
                await one.service.look()
            return one.service.hindrance

    assert "keys='[': expected a JSON object" in asyncio.run(start())


def test_missing_right_on_the_secret_is_why_nothing_is_decided(playground):
    playground.faults.add(InjectedFault(verb="get", resource="secrets", code=403, times=None))

    async def start():
        async with replica(playground) as one:
            with pytest.raises(KubeError, match="allow get, create and update of it"):
                await one.service.look()

    asyncio.run(start())


def write_pem(path, *keys):
    path.write_bytes(
        b"".join(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            for key in keys
        )
    )


def test_changed_key_file_rotates_by_overlap_without_a_secret(playground, tmp_path):
    file = tmp_path / "key.pem"
    write_pem(file, Ed25519PrivateKey.generate())

    async def turn():
        async with replica(playground, key_file=file) as one:
            await one.look()
            first = one.current
            write_pem(file, Ed25519PrivateKey.generate())
            one.now += 5
            await one.look()
            early = one.current
            one.now += 60
            late = one.current
            one.now += 600
            await one.look()
            return first, early, late, one.published

    first, early, late, published = asyncio.run(turn())

    assert early == first
    assert late != first
    assert published == {late}
    assert not playground.objects("secrets", "kube-system")
