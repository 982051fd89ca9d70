import json

import pytest

import builders
from slicewise.cluster import Feed, GpuHealth, Ledger, NodeGone, NodeSeen, Quota
from slicewise.dialects import DEFAULT, GPUS, write_gpus
from slicewise.model import NodeNotice


def notice(name="n0", gpus=2, version=1, **facts):
    text = gpus if isinstance(gpus, str) else write_gpus(builders.node(name, gpus))
    return NodeNotice(name, annotations={GPUS: text}, version=version, **facts)


def twice(name="n0", version=2):
    gpus = json.loads(write_gpus(builders.node(name, 1)))
    return notice(name, json.dumps({"gpus": gpus["gpus"] * 2}), version)


def test_node_is_read_by_its_dialect():
    (event,) = Feed().on_node(notice(gpus=3, version=5))

    assert isinstance(event, NodeSeen)
    assert (len(event.node.gpus), event.version) == (3, 5)


def test_node_that_contradicts_itself_keeps_its_last_inventory_and_is_reported():
    feed = Feed()
    (good,) = feed.on_node(notice())

    (event,) = feed.on_node(twice())

    assert (event.node, event.version) == (good.node, 2)
    (problem,) = feed.problems()
    assert (problem.subject, problem.trouble) == ("node/n0", "UnreadableNode")
    assert "keeps its last inventory" in problem.detail


def test_node_that_was_never_good_is_left_out_until_it_is():
    feed = Feed()

    assert feed.on_node(twice()) == ()
    assert "left out" in feed.problems()[0].detail
    assert len(feed.on_node(notice(version=3))) == 1
    assert feed.problems() == ()


def test_heartbeat_gives_the_same_inventory_under_its_new_version():
    feed = Feed()
    (first,) = feed.on_node(notice(version=1))

    (second,) = feed.on_node(notice(version=2))

    assert second.node is first.node
    assert second.version == 2


def test_lost_node_takes_its_reports_with_it():
    feed = Feed()
    feed.on_node(twice())

    assert feed.on_node_deleted("n0", 9) == (NodeGone("n0", 9),)
    assert feed.problems() == ()


def test_listed_minor_numbers_make_gpus_unhealthy_and_healthy_again():
    feed, ledger = Feed(), Ledger(DEFAULT)
    feed_all(ledger, feed.on_node(notice()))

    feed_all(ledger, feed.on_unhealthy_list("n0", "1"))
    unhealthy = health(ledger)
    feed_all(ledger, feed.on_unhealthy_list("n0", "0"))
    other = health(ledger)
    feed_all(ledger, feed.on_unhealthy_list("n0", None))

    assert (unhealthy, other, health(ledger)) == ([True, False], [False, True], [True, True])


def test_list_that_came_before_its_node_counts_when_the_node_comes():
    feed, ledger = Feed(), Ledger(DEFAULT)

    assert feed.on_unhealthy_list("n0", "0") == ()
    feed_all(ledger, feed.on_node(notice()))

    assert health(ledger) == [False, True]


def test_gpus_stay_unhealthy_when_their_node_comes_back():
    feed, ledger = Feed(), Ledger(DEFAULT)
    feed.on_unhealthy_list("n0", "0")
    feed_all(ledger, feed.on_node(notice()))
    feed_all(ledger, feed.on_node_deleted("n0", 2))

    feed_all(ledger, feed.on_node(notice(version=3)))

    assert health(ledger) == [False, True]


def test_gpu_is_unhealthy_by_minor_number_whatever_its_uuid_becomes():
    feed = Feed()
    plain = NodeNotice("n0", capacity={"aliyun.com/gpu-count": 2, "aliyun.com/gpu-mem": 80})
    feed.on_node(plain)
    feed.on_unhealthy_list("n0", "1")

    _, healthy, unhealthy = feed.on_node(notice(version=2))

    assert (healthy.healthy, unhealthy) == (True, GpuHealth("n0", "GPU-n0-1", False))


def test_strange_entries_of_a_list_are_reported_and_gpu_0_is_not_blamed():
    feed = Feed()
    feed.on_node(notice())

    assert feed.on_unhealthy_list("n0", "x,1") == (GpuHealth("n0", "GPU-n0-1", False),)
    (problem,) = feed.problems()
    assert (problem.subject, problem.trouble) == ("unhealthy-gpu-n0", "UnreadableHealth")
    feed.on_unhealthy_list("n0", "1")
    assert feed.problems() == ()


@pytest.mark.parametrize("text", ["{", '{"a": 1}', '{"a": {"quota": {"T4": -1}}}'])
def test_mistaken_quota_keeps_the_last_good_one(text):
    feed = Feed()
    feed.on_quota({"gpu_quota": '{"a": {"quota": {"T4": 2}}}'})
    good = feed.quota

    feed.on_quota({"gpu_quota": text})

    assert feed.quota is good
    assert [problem.trouble for problem in feed.problems()] == ["UnreadableQuota"]


def test_quota_that_was_never_good_allows_nothing():
    feed = Feed()

    feed.on_quota({"gpu_quota": "{"})

    assert "gpu_quota: not JSON" in feed.quota.unreadable
    feed.on_quota({"gpu_quota": "{}"})
    assert feed.quota == Quota()


@pytest.mark.parametrize("data", [None, {}, {"gpu_quota": "{}"}])
def test_absent_quota_is_no_quota(data):
    feed = Feed()
    feed.on_quota({"gpu_quota": '{"a": {"quota": {"T4": 2}}}'})

    feed.on_quota(data)

    assert feed.quota == Quota()


def feed_all(ledger, events):
    for event in events:
        ledger.apply(event)


def health(ledger):
    return [gpu.healthy for gpu in ledger.snapshot().get("n0").node.gpus]


def test_gpus_that_claims_share_are_closed_to_whoever_does_not_follow_claims():
    shared = builders.node(gpus=[builders.gpu(0, shared=True), builders.gpu(1)])
    notice = NodeNotice("n0", annotations={GPUS: write_gpus(shared)})

    for follows, usable in ((True, [True, True]), (False, [False, True])):
        (seen,) = Feed(claims=follows).on_node(notice)
        assert [gpu.usable for gpu in seen.node.gpus] == usable
