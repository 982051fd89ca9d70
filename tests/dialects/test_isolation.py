"""Isolation in annotations and labels, in the inventory and in signed records."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from slicewise.dialects import DEFAULT
from slicewise.dialects.shared.inventory import GPUS, read_gpus, write_gpus
from slicewise.dialects.shared.isolation import (
    ALLOW_UNLIMITED,
    CEILING,
    COMPUTE_LABEL,
    FLOOR,
    ISOLATION,
    MEMORY_LABEL,
    add_terms,
    read_rules,
    read_wish,
    show_promises,
)
from slicewise.dialects.shared.publication import NodeFacts
from slicewise.dialects.shared.signed_record import read_signed_record, write_signed_record
from slicewise.model import (
    HOOKED,
    NO_RULES,
    NO_WISH,
    STRONGEST,
    DialectError,
    IsolationTier,
    IsolationWish,
    NodeNotice,
    OfferedIsolation,
    Percent,
    Request,
)
from strategies import place, texts

NONE, HOOK, MPS, DRIVER = IsolationTier
HOOK_ONLY = OfferedIsolation((HOOK,), (HOOK,))
UNTESTED = OfferedIsolation((HOOK,), (HOOK,), driver_untested=True)


def isolated(offered=HOOK_ONLY, gpus=2):
    node = builders.node(gpus=gpus)
    return replace(node, gpus=tuple(replace(gpu, isolation=offered) for gpu in node.gpus))


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("hook", IsolationWish(HOOK, HOOK)),
        ("mps", IsolationWish(MPS, HOOK)),
        ("driver", IsolationWish(DRIVER, HOOK)),
        ("none", IsolationWish(NONE, NONE)),
        ("memory=driver,compute=hook", IsolationWish(DRIVER, HOOK)),
        (" memory = driver ", IsolationWish(DRIVER, None)),
        ("compute=mps", IsolationWish(None, MPS)),
    ],
)
def test_words_of_a_pod(text, wish):
    assert read_wish("f", text) == wish


@pytest.mark.parametrize(
    "text", ["", "strong", "memory=", "compute=driver", "memory=hook,memory=driver", "hook,mps"]
)
def test_other_words_are_refused_with_what_they_were(text):
    with pytest.raises(DialectError, match=r"slicewise\.io/isolation="):
        DEFAULT.read_request(
            builders.pod(limits={"slicewise.io/cores": 30}, annotations={ISOLATION: text})
        )


@given(texts)
def test_any_text_is_read_or_refused(text):
    try:
        read = read_wish("f", text)
    except DialectError as error:
        read = error

    assert isinstance(read, IsolationWish) or "f=" in str(read)


@pytest.mark.parametrize(
    ("labels", "floor", "may_opt_out"),
    [
        ({}, "none/none", False),
        ({FLOOR: "hook"}, "hook/hook", False),
        ({FLOOR: "memory.driver_compute.hook"}, "driver/hook", False),
        ({ALLOW_UNLIMITED: "true"}, "none/none", True),
        ({ALLOW_UNLIMITED: "yes"}, "none/none", False),
    ],
)
def test_labels_of_a_namespace(labels, floor, may_opt_out):
    rules = read_rules(labels)

    assert (str(rules.floor), rules.may_opt_out, rules.unreadable) == (floor, may_opt_out, "")


def test_floor_that_cannot_be_read_allows_no_share():
    assert FLOOR in read_rules({FLOOR: "strong"}).unreadable


@pytest.mark.parametrize(
    "limits",
    [
        {"slicewise.io/cores": 30, "slicewise.io/memory": 1024},
        {"nvidia.com/vcuda-core": 30, "nvidia.com/vcuda-memory": 1024},
        {"elasticgpu.io/gpu-core": 30, "elasticgpu.io/gpu-memory": 1024},
        {"aliyun.com/gpu-mem": 4},
    ],
    ids=lambda limits: next(iter(limits)),
)
def test_every_system_has_the_annotation_and_the_ceiling(limits):
    pod = builders.pod(limits=limits, annotations={ISOLATION: "driver", CEILING: "60"})
    request = DEFAULT.read_request(pod)

    assert request.isolation == IsolationWish(DRIVER, HOOK)
    assert request.ceiling == 60


def test_core_limit_of_gpu_manager_is_the_ceiling():
    pod = builders.pod(
        limits={"nvidia.com/vcuda-core": 30, "nvidia.com/vcuda-memory": 1024},
        annotations={"nvidia.com/vcuda-core-limit": "55"},
    )

    assert DEFAULT.read_request(pod).ceiling == 55


@pytest.mark.parametrize("text", ["0", "101", "half", "-1"])
def test_ceiling_is_a_percentage(text):
    pod = builders.pod(limits={"slicewise.io/cores": 30}, annotations={CEILING: text})

    with pytest.raises(DialectError, match=r"slicewise\.io/ceiling"):
        DEFAULT.read_request(pod)


@pytest.mark.parametrize(
    "offered",
    [HOOK_ONLY, UNTESTED, OfferedIsolation((HOOK, DRIVER), (HOOK, MPS)), OfferedIsolation()],
)
def test_tiers_of_a_gpu_are_read_back_from_the_inventory(offered):
    node = isolated(offered)
    read = read_gpus(node.name, write_gpus(node))

    assert [gpu.isolation for gpu in read.gpus] == [offered] * 2


def test_inventory_without_isolation_is_written_as_before():
    assert "isolation" not in write_gpus(builders.node())


def test_untested_driver_tier_is_published_and_serves_nobody():
    text = write_gpus(isolated(UNTESTED))

    assert json.loads(text)["gpus"][0]["isolation"]["memory"] == ["hook", "driver-untested"]
    assert read_gpus("n0", text).gpus[0].isolation.best == HOOKED


def test_reason_of_no_tier_is_published():
    offered = OfferedIsolation(why="the library is not on this host")
    told = json.loads(write_gpus(isolated(offered)))["gpus"][0]["isolation"]

    assert told == {
        "memory": ["none"],
        "compute": ["none"],
        "why": "the library is not on this host",
    }


def test_labels_of_a_node_say_what_every_gpu_offers():
    node = isolated()
    mixed = replace(node, gpus=(node.gpus[0], replace(node.gpus[1], isolation=OfferedIsolation())))

    def labels(node):
        return DEFAULT.publish(NodeFacts(node), ["slicewise"]).labels

    assert labels(node)[MEMORY_LABEL] == labels(node)[COMPUTE_LABEL] == "hook"
    assert MEMORY_LABEL not in labels(mixed)


def test_unknown_tiers_of_newer_agents_offer_nothing():
    text = write_gpus(isolated()).replace('"hook"', '"vm"')

    assert read_gpus("n0", text).gpus[0].isolation == OfferedIsolation()


@pytest.mark.parametrize("entry", ['"hook"', "[]", '{"memory":"hook"}', '{"compute":[1]}'])
def test_broken_tiers_are_refused(entry):
    document = json.loads(write_gpus(builders.node(gpus=1)))
    document["gpus"][0]["isolation"] = json.loads(entry)
    notice = NodeNotice("n0", annotations={GPUS: json.dumps(document)})

    with pytest.raises(DialectError, match="isolation"):
        DEFAULT.read_node(notice)


def promised(request, node, **facts):
    return add_terms(request, place(request, node), node, facts.get("rules", NO_RULES), STRONGEST)


def test_record_says_what_was_promised_and_is_read_back():
    node, pod = isolated(), builders.pod(limits={"slicewise.io/cores": 30})
    request = replace(builders.fraction(), ceiling=Percent(60))
    text = write_signed_record(promised(request, node), node, epoch=3, now_ns=7)
    read = read_signed_record(text, pod, node).allocation.containers[0]

    assert json.loads(text)["isolation"] == {"c0": ["hook", "hook"]}
    assert (read.isolation, read.ceiling) == (HOOKED, 60)


@pytest.mark.parametrize(
    ("request_", "node"),
    [
        pytest.param(builders.fraction(), builders.node(), id="nothing-offered"),
        pytest.param(builders.whole(), isolated(), id="whole"),
        pytest.param(
            replace(builders.fraction(), isolation=IsolationWish(NONE, NONE)),
            isolated(),
            id="opted-out",
        ),
    ],
)
def test_record_without_isolation_has_the_text_it_always_had(request_, node):
    plain = write_signed_record(place(request_, node), node, epoch=3, now_ns=7)

    assert write_signed_record(promised(request_, node), node, epoch=3, now_ns=7) == plain
    assert set(json.loads(plain)) == {"at", "containers", "epoch", "node"}


@given(
    st.sampled_from(("isolation", "ceilings")),
    st.sampled_from(
        ('"hook"', '["hook"]', '["hook","driver"]', "101", "true", '[["hook"]]', "0", "1.5")
    ),
)
def test_terms_that_cannot_be_read_make_the_record_unreadable(key, value):
    node, pod = isolated(), builders.pod(limits={"slicewise.io/cores": 30})
    plain = json.loads(
        write_signed_record(place(builders.fraction(), node), node, epoch=1, now_ns=1)
    )
    text = json.dumps({**plain, key: {"c0": json.loads(value)}})

    with pytest.raises(DialectError):
        read_signed_record(text, pod, node)


def test_label_of_gpushare_switches_its_limits_off_and_nobody_elses():
    notice = NodeNotice(
        "n0",
        labels={"cgpu.disable.isolation": "true"},
        annotations={GPUS: write_gpus(isolated())},
    )
    node = DEFAULT.read_node(notice)

    def told(limits):
        pod = builders.pod(limits=limits)
        request: Request = DEFAULT.read_request(pod)
        return str(
            DEFAULT.add_terms(pod, request, place(request, node), node).containers[0].isolation
        )

    assert told({"aliyun.com/gpu-mem": 4}) == "none/none"
    assert told({"slicewise.io/cores": 30, "slicewise.io/memory": 4096}) == "hook/hook"


def test_memory_alone_is_promised_no_compute():
    pod, node = builders.pod(limits={"aliyun.com/gpu-mem": 4}), isolated()
    request = DEFAULT.read_request(pod)
    found = DEFAULT.add_terms(pod, request, place(request, node), node).containers[0]

    assert str(found.isolation) == "hook/none"
    assert request.isolation == NO_WISH


@pytest.mark.parametrize(
    ("terms", "shown"),
    [
        ({"isolation": {"a": ["hook", "hook"], "b": ["hook", "hook"]}}, "hook/hook"),
        (
            {"isolation": {"a": ["hook", "none"], "b": ["driver", "hook"]}},
            "driver/hook, hook/none",
        ),
        ({}, ""),
        ({"isolation": {"a": ["iron", "hook"]}}, ""),
        ({"isolation": ["a"]}, ""),
        ({"isolation": 3}, ""),
    ],
)
def test_promises_of_a_record_are_shown_and_damaged_ones_are_not(terms, shown):
    assert show_promises(json.dumps({"node": "n0", **terms})) == shown
    assert show_promises('damaged "isolation"') == ""
