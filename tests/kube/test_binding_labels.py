"""Labels of a bound pod, on API servers that copy those of a Binding and on those that do not."""

import asyncio
from dataclasses import replace

import pytest

import builders
from conformance.bodies import pod
from kube.lines import KEEP, client
from slicewise.dialects import DEFAULT
from slicewise.kube.objects import ObjectReader
from slicewise.kube.outcomes import PodName, WriteStatus
from slicewise.kube.pod_writer import PodWriter
from slicewise.model import Allocation, ContainerAllocation, PodRecord
from slicewise_playground.api.faults import InjectedFault
from slicewise_playground.cluster import Playground

MARKS = PodRecord({"gpu": "0"}, {"slicewise.io/bound": "yes"})
OLD, NEW = "v1.34.10", "v1.35.0"
PATCH = ("patch", "pods", "200")
BIND = ("create", "pods/binding", "201")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def make(playground, name):
    made = playground.create("pods", pod(name))["metadata"]
    return PodName(made["uid"], "default", name, int(made["resourceVersion"]))


def work(playground, act):
    """What the act of a writer returned, and which requests it took, by verb and resource."""

    async def run():
        async with client(playground.url) as line:
            clock = Clock()
            writes = PodWriter(line, ObjectReader(KEEP), bind_seconds=1.0, clock=clock)
            return await act(writes, clock), dict(line.calls.counts)

    return asyncio.run(run())


def bind(playground, *names):
    async def act(writes, _clock):
        return [await writes.bind(make(playground, each), "n1", MARKS) for each in names]

    return work(playground, act)


def labels(playground, name):
    return playground.get("pods", name)["metadata"].get("labels")


def seen_bare(playground):
    """Which pods anybody could see bound and without their labels."""
    bodies = [each.new.object for each in playground.store.collections["pods"].changes]
    bound = [each for each in bodies if each["spec"].get("nodeName")]
    return [
        each["metadata"]["name"]
        for each in bound
        if (each["metadata"].get("labels") or {}) != MARKS.labels
    ]


def test_old_server_shows_the_labels_before_the_pod_is_bound():
    with Playground(version=OLD) as playground:
        outcomes, counts = bind(playground, "a", "b")
        bare = seen_bare(playground)

    assert [each.status for each in outcomes] == [WriteStatus.DONE] * 2
    assert counts == {("get", "version", "200"): 1, PATCH: 2, BIND: 2}
    assert not bare


def test_new_server_takes_one_write_per_pod_and_is_read_back_once():
    with Playground(version=NEW) as playground:
        _, counts = bind(playground, "a", "b", "c")
        found = labels(playground, "c")

    assert counts == {("get", "version", "200"): 1, ("get", "pods", "200"): 1, BIND: 3}
    assert found == MARKS.labels


def test_switched_off_feature_is_found_by_reading_back_and_remembered():
    with Playground(version=NEW) as playground:
        playground.api.binding_labels = False
        _, counts = bind(playground, "a", "b")
        found = [labels(playground, each) for each in "ab"]

    assert found == [MARKS.labels] * 2
    assert counts[PATCH] == 2


def test_binds_at_once_wait_for_what_the_first_pod_shows():
    async def act(writes, _clock):
        names = [make(playground, each) for each in "abcd"]
        return await asyncio.gather(*(writes.bind(each, "n1", MARKS) for each in names))

    with Playground(version=NEW) as playground:
        playground.api.binding_labels = False
        _, counts = work(playground, act)
        late = seen_bare(playground)

    assert len(late) == 1
    assert counts["get", "version", "200"] == 1
    assert counts[PATCH] == 4


def test_upgrade_of_the_server_is_noticed_after_five_minutes():
    async def act(writes, clock):
        await writes.bind(make(playground, "a"), "n1", MARKS)
        playground.api.version, playground.api.binding_labels = NEW, True
        clock.now += 301
        before = writes._client.calls.counts[PATCH]
        await writes.bind(make(playground, "b"), "n1", MARKS)
        return before, writes._client.calls.counts[PATCH]

    with Playground(version=OLD) as playground:
        assert work(playground, act)[0] == (1, 1)
        assert labels(playground, "b") == MARKS.labels


def test_pod_without_labels_to_write_asks_nothing():
    async def act(writes, _clock):
        return await writes.bind(make(playground, "a"), "n1", PodRecord({"gpu": "0"}))

    with Playground(version=OLD) as playground:
        assert work(playground, act)[1] == {BIND: 1}


def test_server_that_does_not_tell_its_version_gets_two_writes():
    with Playground(version=NEW) as playground:

        async def act(writes, _clock):
            writes._client.read_once = _refuse
            return await writes.bind(make(playground, "a"), "n1", MARKS)

        outcome, counts = work(playground, act)

    assert outcome.status is WriteStatus.DONE
    assert counts == {PATCH: 1, BIND: 1}


async def _refuse(call, **_facts):
    raise TimeoutError(call.path)


def test_late_patch_of_an_earlier_leader_changes_nothing():
    """What it names is the version before the next leader bound the pod."""
    with Playground(version=OLD) as playground:
        name = make(playground, "a")
        bind_again = PodRecord({"gpu": "1"}, {"slicewise.io/bound": "by-the-next"})
        work(playground, lambda writes, _: writes.bind(name, "n1", bind_again))

        outcome, _ = work(playground, lambda writes, _: writes.bind(name, "n2", MARKS))

        assert outcome.status is WriteStatus.CONFLICT
        assert labels(playground, "a") == bind_again.labels


def test_pod_that_changed_meanwhile_is_labelled_at_its_new_version():
    with Playground(version=OLD) as playground:
        name = make(playground, "a")
        playground.patch("pods", "a", {"metadata": {"annotations": {"x": "y"}}})

        outcome, _ = work(playground, lambda writes, _: writes.bind(name, "n1", MARKS))

        assert outcome.status is WriteStatus.DONE
        assert labels(playground, "a") == MARKS.labels


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(InjectedFault(verb="patch", code=403), id="labels-refused"),
        pytest.param(InjectedFault(verb="patch", action="cut"), id="answer-lost"),
        pytest.param(InjectedFault(resource="pods/binding", code=403), id="bind-refused"),
    ],
)
def test_failed_bind_leaves_a_pod_that_holds_nothing(fault):
    with Playground(version=OLD) as playground:
        name = make(playground, "a")
        playground.faults.add(fault)

        outcome, _ = work(playground, lambda writes, _: writes.bind(name, "n1", MARKS))
        left = playground.get("pods", "a")

    assert outcome.status is WriteStatus.REFUSED
    assert "nodeName" not in left["spec"]
    assert "annotations" not in left["metadata"]


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"nvidia.com/vcuda-core": 30, "nvidia.com/vcuda-memory": 1024}, id="fork"),
        pytest.param(
            {"elasticgpu.io/gpu-core": 30, "elasticgpu.io/gpu-memory": 1024}, id="elastic"
        ),
    ],
)
def test_labels_alone_are_believed_by_no_dialect(limits):
    asking, node = builders.pod(limits=limits), builders.node(gpus=1)
    allocation = Allocation(node.name, (ContainerAllocation("c0", (builders.piece(),)),))
    wanted = DEFAULT.read_request(asking)
    record = DEFAULT.record_allocation(asking, wanted, allocation, node, now_ns=1)
    labelled = replace(asking, labels=record.labels)

    assert record.labels
    assert DEFAULT.read_allocation(labelled, node) is None
    assert DEFAULT.read_target(labelled) is None
