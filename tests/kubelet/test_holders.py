import asyncio

import pytest

from fakes.kubelet import FakeKubelet, Held, Known
from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.holders import PodResourcesClient, find_holders
from slicewise.kubelet.podresources import V1, V1_ALPHA
from slicewise.model import Role

CORE = "example.com/core"


def run(scene):
    return asyncio.run(asyncio.wait_for(scene, 60))


def hold(kubelet, name, container="c0", role=Role.MAIN, **units):
    pods = kubelet.pods.setdefault(("ns", name), {})
    pods[container] = Held({CORE.replace("core", key): ids for key, ids in units.items()}, {}, role)


async def ask(path, question, speaks=V1):
    kubelet = FakeKubelet(path, speaks=speaks)
    hold(kubelet, "a", core=("1", "2"), mem=("7",))
    hold(kubelet, "a", "c1", core=("3",))
    hold(kubelet, "b", core=("12",))
    hold(kubelet, "b", "early", Role.INIT, core=("99",))
    client = PodResourcesClient(kubelet.pod_resources)
    async with kubelet:
        try:
            return await question(client, kubelet)
        finally:
            await client.close()


@pytest.mark.parametrize("speaks", [V1, V1_ALPHA])
def test_container_is_found_by_exactly_its_units(tmp_path, speaks):
    async def question(client, _):
        asked = [{"1", "2"}, {"3"}, {"12"}, {"1"}, {"1", "2", "3"}, {"99"}]
        return [await client.find(CORE, frozenset(ids)) for ids in asked]

    found = run(ask(tmp_path, question, speaks))

    names = [None if each is None else (each.pod, each.container) for each in found]
    assert names == [("a", "c0"), ("a", "c1"), ("b", "c0"), None, None, None]


def test_units_of_another_resource_find_nobody(tmp_path):
    async def question(client, _):
        return await client.find("example.com/mem", frozenset({"1", "2"}))

    assert run(ask(tmp_path, question)) is None


def test_list_merges_units_that_are_told_one_by_one(tmp_path):
    async def question(client, _):
        return await client.list()

    first = run(ask(tmp_path, question))[0]

    assert first.units == {CORE: {"1", "2"}, "example.com/mem": {"7"}}


def test_pod_is_read_by_name_and_an_unknown_one_is_none(tmp_path):
    async def question(client, _):
        return await client.get("ns", "a"), await client.get("ns", "nobody")

    found, missing = run(ask(tmp_path, question))

    assert [each.container for each in found] == ["c0", "c1"]
    assert missing is None


def test_kubelet_that_cannot_tell_of_one_pod_is_asked_once(tmp_path):
    async def question(client, kubelet):
        kubelet.can_get = False
        return [await client.get("ns", "a") for _ in range(3)], kubelet.gets

    assert run(ask(tmp_path, question)) == ([None] * 3, 1)


def test_many_questions_at_once_share_two_lists(tmp_path):
    async def question(client, kubelet):
        asked = [client.find(CORE, frozenset({"3"})) for _ in range(50)]
        return await asyncio.gather(*asked), kubelet.lists

    found, lists = run(ask(tmp_path, question))

    assert {each.container for each in found} == {"c1"}
    assert lists == 2


def test_question_is_answered_by_a_list_that_began_after_it(tmp_path):
    async def question(client, kubelet):
        first = asyncio.ensure_future(client.find(CORE, frozenset({"3"})))
        await kubelet.until(lambda: kubelet.lists == 1)
        hold(kubelet, "late", core=("55",))
        late = await client.find(CORE, frozenset({"55"}))
        await first
        return late.pod

    assert run(ask(tmp_path, question)) == "late"


def test_connection_comes_back_after_a_restart(tmp_path):
    async def question(client, kubelet):
        await client.list()
        await kubelet.restart()
        return await client.find(CORE, frozenset({"3"}))

    assert run(ask(tmp_path, question)).container == "c1"


def test_absent_kubelet_is_an_error_that_names_the_socket(tmp_path):
    client = PodResourcesClient(tmp_path / "none.sock", seconds=0.2)

    async def scene():
        try:
            await client.list()
        finally:
            await client.close()

    with pytest.raises(KubeletError, match=r"none\.sock"):
        run(scene())


def test_healthy_units_are_told_by_resource(tmp_path):
    async def question(client, kubelet):
        kubelet.known[CORE] = Known(None, None, healthy={"1", "2"}, sick={"3"})
        try:
            return await client.allocatable()
        finally:
            kubelet.known.clear()

    assert run(ask(tmp_path, question)) == {CORE: {"1", "2"}}


def test_nothing_is_held_by_nobody():
    assert find_holders(b"", CORE, frozenset()) == ()
