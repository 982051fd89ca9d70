import asyncio
from contextlib import asynccontextmanager

import pytest

import builders
from conformance.bodies import config_map, pod
from kube.lines import client
from slicewise.dialects import ALLOCATION, GPUS, write_gpus
from slicewise.dialects.shared.signed_record import SIGNATURE, write_signed_record
from slicewise.model import Allocation, ContainerAllocation
from slicewise.state.live import LiveState
from slicewise.state.settings import StateSettings, choose_settings
from slicewise.state.trust import TRUST_CONFIGMAP
from slicewise.trust import SigningKey, TrustDocument, write_trust
from slicewise_playground.api.faults import InjectedFault
from slicewise_playground.cluster import Playground
from state.test_live import FOLLOWING, until

KEY, OTHER = SigningKey(bytes(range(32))), SigningKey(bytes(range(1, 33)))
NODE = builders.node("n0", 2, agent=True)
NAMESPACE, NAME = TRUST_CONFIGMAP
LIMITS = {"slicewise.io/cores": "30", "slicewise.io/memory": "4096"}


@pytest.fixture
def playground():
    with Playground() as made:
        made.create("nodes", {"metadata": {"name": "n0", "annotations": {GPUS: write_gpus(NODE)}}})
        yield made


def publish(playground, *keys):
    data = write_trust(TrustDocument({key.id: key.public for key in keys}))
    if any(each["metadata"]["name"] == NAME for each in playground.objects("configmaps")):
        playground.patch("configmaps", NAME, {"data": data}, namespace=NAMESPACE)
    else:
        playground.create("configmaps", config_map(NAME, data, namespace=NAMESPACE))


def run_pod(playground, name, key):
    made = playground.create("pods", pod(name, limits=LIMITS))
    granted = Allocation("n0", (ContainerAllocation("main", (builders.piece(1),)),))
    text = write_signed_record(granted, NODE, epoch=1, now_ns=1)
    signature = key.sign(made["metadata"]["uid"], text)
    playground.bind(name, "n0", annotations={ALLOCATION: text, SIGNATURE: signature})


@asynccontextmanager
async def living(playground, **facts):
    async with client(playground.url) as line:
        state = LiveState(line, StateSettings(following=FOLLOWING, **facts))
        async with asyncio.timeout(20):
            await state.start()
        try:
            yield state
        finally:
            await state.stop()


def troubled(state):
    return {problem.subject for problem in state.problems()}


@pytest.mark.parametrize("verify_seconds", [None, 0.0, 5.0])
def test_records_are_verified_at_once_or_soon(playground, verify_seconds):
    publish(playground, KEY)
    run_pod(playground, "honest", KEY)
    run_pod(playground, "forged", OTHER)

    async def start():
        async with living(playground, verify_seconds=verify_seconds) as state:
            await until(lambda: troubled(state) == {"default/forged"})

    asyncio.run(start())


def test_nothing_is_checked_before_keys_are_published(playground):
    run_pod(playground, "forged", OTHER)

    async def start():
        async with living(playground) as state:
            before = troubled(state)
            publish(playground, KEY)
            await until(lambda: troubled(state) == {"default/forged"})
            return before

    assert asyncio.run(start()) == set()


def test_key_that_is_taken_back_or_added_has_its_pods_read_again(playground):
    publish(playground, KEY, OTHER)
    run_pod(playground, "one", KEY)
    run_pod(playground, "two", OTHER)

    async def change():
        async with living(playground) as state:
            await until(lambda: troubled(state) == set())
            publish(playground, OTHER)
            await until(lambda: troubled(state) == {"default/one"})
            publish(playground, KEY, OTHER)
            await until(lambda: troubled(state) == set())

    asyncio.run(change())


def test_unreadable_configmap_is_a_problem_and_the_last_good_counts(playground):
    publish(playground, KEY)
    run_pod(playground, "one", KEY)

    async def break_it():
        async with living(playground) as state:
            playground.patch("configmaps", NAME, {"data": {"keys": "["}}, namespace=NAMESPACE)
            await until(lambda: troubled(state))
            return state.problems()

    (problem,) = asyncio.run(break_it())
    assert (problem.subject, problem.trouble) == ("kube-system/slicewise-trust", "UnreadableTrust")


def test_tools_that_may_not_read_the_keys_check_nothing_and_say_so(playground):
    fault = InjectedFault(verb="list", resource="configmaps", code=403, times=None)
    playground.faults.add(fault)
    told = []

    async def choose():
        async with client(playground.url) as line:
            return await choose_settings(line, "default", told.append)

    settings = asyncio.run(choose())

    assert (settings.trust, settings.quota) == (None, None)
    assert told[0].startswith("records on pods are not verified: ")
