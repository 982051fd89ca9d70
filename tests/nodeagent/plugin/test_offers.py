import pytest

import builders
from slicewise.dialects import DEFAULT, build_dialects
from slicewise.dialects.shared.limits import CARRIER
from slicewise.kubelet.v1beta1 import MESSAGE_LIMIT, Unit, encode_units
from slicewise.model import MiB
from slicewise.nodeagent.plugin.offers import (
    OfferKind,
    UnservedPodWarnings,
    find_unserved,
    list_units,
    plan_offers,
)

EVERY = ("slicewise", "tkestack", "tkestack-upstream", "gpushare", "elastic", "nvidia")
BIG = builders.node(gpus=8, memory=81920)
SMALL = builders.node(gpus=2, memory=8000)


def test_small_node_offers_every_resource_unit_by_unit():
    plan = plan_offers(DEFAULT.find_editions(EVERY), SMALL)

    assert set(plan.ways.values()) == {OfferKind.DEVICES}
    assert plan.extended(SMALL) == {"aliyun.com/gpu-count": 2}


def test_eight_gpus_of_80_gib_offer_memory_in_mib_as_an_amount():
    plan = plan_offers(DEFAULT.find_editions(EVERY), BIG)

    amounts = {name for name, way in plan.ways.items() if way is OfferKind.AMOUNT}
    assert amounts == {"nvidia.com/vcuda-memory", "elasticgpu.io/gpu-memory", "slicewise.io/memory"}
    assert plan.extended(BIG)["nvidia.com/vcuda-memory"] == 8 * 81920
    assert plan.ways["tencent.com/vcuda-memory"] is OfferKind.DEVICES


def test_memory_of_many_units_is_an_amount_unless_nothing_else_carries_the_gpus():
    node = builders.node(gpus=2, memory=24576)
    editions = build_dialects(MiB(1)).find_editions(["slicewise", "gpushare"])
    plan = plan_offers(editions, node)

    assert plan.ways["slicewise.io/memory"] is OfferKind.AMOUNT
    assert plan.ways["aliyun.com/gpu-mem"] is OfferKind.DEVICES
    assert (
        plan_offers(editions, node, most_units=50000).ways["slicewise.io/memory"]
        is OfferKind.DEVICES
    )


def test_no_message_of_any_offered_resource_exceeds_the_limit():
    for _, resource in plan_offers(DEFAULT.find_editions(EVERY), BIG).devices:
        assert len(encode_units(list_units(resource, BIG))) <= MESSAGE_LIMIT


def test_resource_that_nothing_else_carries_is_refused_with_its_size(caplog):
    plan = plan_offers(build_dialects(MiB(1)).find_editions(["gpushare"]), BIG)

    assert plan.ways == {"aliyun.com/gpu-mem": OfferKind.REFUSED}
    assert plan.devices == ()
    assert "resource=aliyun.com/gpu-mem" in caplog.text
    assert "most_bytes=4194304 way=refused" in caplog.text


def test_log_says_which_limit_was_met(caplog):
    plan_offers(DEFAULT.find_editions(["slicewise"]), builders.node(gpus=1, memory=40960))

    assert "too many units for a kubelet" in caplog.text
    assert "resource=slicewise.io/memory units=40960 most_units=16384 way=amount" in caplog.text
    assert "list too long" not in caplog.text


def test_large_node_offers_a_carrier_for_memory_that_is_asked_for_alone():
    plan = plan_offers(DEFAULT.find_editions(EVERY), BIG)
    edition, resource = next(each for each in plan.devices if each[1].name == CARRIER)

    def carrier(**limits):
        return edition.carrier(builders.container(**{**limits, CARRIER: 1}))

    assert sum(1 for _ in list_units(resource, BIG)) == 8 * 256
    assert carrier(**{"slicewise.io/memory": 256}) == CARRIER
    assert carrier(**{"elasticgpu.io/gpu-memory": 256}) == CARRIER
    assert carrier(**{"slicewise.io/memory": 256, "slicewise.io/gpu": 1}) == "slicewise.io/gpu"


def test_node_of_systems_without_such_memory_offers_no_carrier():
    plan = plan_offers(DEFAULT.find_editions(["gpushare", "nvidia"]), BIG)

    assert CARRIER not in plan.ways


def test_line_is_drawn_at_the_exact_size():
    (edition,) = DEFAULT.find_editions(["tkestack"])
    memory = edition.resources[1]
    size = len(encode_units(Unit(unit.id, healthy=False) for unit in list_units(memory, SMALL)))

    assert plan_offers([edition], SMALL, size).ways[memory.name] is OfferKind.DEVICES
    assert plan_offers([edition], SMALL, size - 1).ways[memory.name] is OfferKind.AMOUNT


def test_units_of_an_unhealthy_gpu_are_unhealthy_and_gpus_in_mig_mode_make_none():
    gpus = [builders.gpu(0, healthy=False), builders.gpu(1), builders.gpu(2, mig=True)]
    (edition,) = DEFAULT.find_editions(["tkestack"])
    units = list(list_units(edition.resources[0], builders.node(gpus=gpus)))

    assert [sum(unit.healthy is state for unit in units) for state in (True, False)] == [100, 100]


class Board:
    def __init__(self):
        self.events = []

    def post(self, pod, event):
        self.events.append((pod.name, event.reason, event.note))


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ({"slicewise.io/memory": 1}, [("c0", "slicewise.io/memory")]),
        ({"slicewise.io/memory": 1, "slicewise.io/cores": 5}, []),
        ({"slicewise.io/memory": 1, "slicewise.io/carrier": 1}, []),
        ({"elasticgpu.io/gpu-memory": 1}, [("c0", "elasticgpu.io/gpu-memory")]),
        ({"nvidia.com/vcuda-core": 5, "nvidia.com/vcuda-memory": 1}, []),
    ],
)
def test_container_whose_only_resource_is_an_amount_is_found(limits, found):
    plan = plan_offers(DEFAULT.find_editions(EVERY), BIG)

    assert list(find_unserved(builders.pod(limits=limits), plan)) == found


def test_container_without_a_gpu_is_complained_about_once():
    board = Board()
    complaints = UnservedPodWarnings(plan_offers(DEFAULT.find_editions(EVERY), BIG), board)
    pod = builders.pod(limits={"slicewise.io/memory": 1})
    complaints.look(pod)
    complaints.look(pod)

    ((name, reason, note),) = board.events
    assert (name, reason) == ("p0", "GpuNotGiven")
    assert "slicewise.io/memory alone" in note
