"""What namespaces demand of isolation, followed by their labels."""

import asyncio

from kube.lines import QUICK, client
from slicewise.dialects.shared.isolation import ALLOW_UNLIMITED, FLOOR
from slicewise.kube.watch import WatchSettings
from slicewise.model import HOOKED, NO_RULES, IsolationRules
from slicewise.state.live import LiveState
from slicewise.state.settings import StateSettings
from slicewise_playground.cluster import Playground

FOLLOWING = WatchSettings(page=3, backoff=QUICK)


async def until(reached):
    async with asyncio.timeout(10):
        while not reached():
            await asyncio.sleep(0.002)


def namespace(name, **labels):
    return {"metadata": {"name": name, "labels": labels}}


def test_labels_of_namespaces_are_followed_and_forgotten():
    async def follow(playground):
        async with client(playground.url, seconds=1.0) as line:
            state = LiveState(line, StateSettings(following=FOLLOWING, namespaces=True))
            before = state.isolation_rules("strict")
            async with asyncio.timeout(20):
                await state.start()
            try:
                found = [state.isolation_rules(each) for each in ("strict", "free", "other")]
                patch = {"metadata": {"labels": {FLOOR: None}}}
                playground.patch("namespaces", "strict", patch)
                await until(lambda: state.isolation_rules("strict") == NO_RULES)
            finally:
                await state.stop()
            return before, found

    with Playground() as playground:
        playground.create("namespaces", namespace("strict", **{FLOOR: "hook"}))
        playground.create("namespaces", namespace("free", **{ALLOW_UNLIMITED: "true"}))
        before, found = asyncio.run(follow(playground))

    # A floor that was not read yet must not be missed.
    assert "could not be read" in before.unreadable
    assert found == [IsolationRules(HOOKED), IsolationRules(may_opt_out=True), NO_RULES]


def test_state_that_does_not_decide_follows_no_namespaces():
    async def look(playground):
        async with client(playground.url, seconds=1.0) as line:
            return LiveState(line).isolation_rules("strict")

    with Playground() as playground:
        assert asyncio.run(look(playground)) == NO_RULES
