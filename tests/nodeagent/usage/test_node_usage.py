from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from nodeagent import scenes
from slicewise.diagnose.evidence import StrayOrigin
from slicewise.model import Slice
from slicewise.nodeagent.node_pods import NO_ALLOCATION, HeldClaim, NodePod
from slicewise.nodeagent.usage.cgroups import CgroupRef
from slicewise.nodeagent.usage.node_usage import NodeUsage, measure

GPUS = (scenes.device(0), scenes.device(1))
ON_0, ON_1 = GPUS[0].gpu.uuid, GPUS[1].gpu.uuid


def observe(*pods: NodePod, loads=None, seen=None) -> NodeUsage:
    return measure("n0", GPUS, pods, scenes.reading(loads or {}, seen))


def test_processes_count_for_the_container_that_holds_the_gpu():
    train = scenes.node_pod("train")
    processes = (scenes.process(7, 1000, 20), scenes.process(8, 500, 5))

    usage = observe(
        train,
        loads={ON_0: scenes.load(*processes)},
        seen={7: [scenes.inside(train)], 8: [scenes.inside(train)]},
    )

    (held,) = usage.containers[0].gpus
    assert (held.memory, held.cores, held.pids) == (1500, 25, (7, 8))
    assert usage.strays == usage.trespasses == ()


def test_an_idle_container_uses_nothing_of_what_it_was_allocated():
    usage = observe(scenes.node_pod("idle"), loads={ON_0: scenes.load()})

    (held,) = usage.containers[0].gpus
    assert (held.answers, held.memory, held.cores, held.pids) == (True, 0, 0, ())
    assert held.allocated == builders.piece()


def test_a_process_outside_every_container_is_a_stray():
    usage = observe(loads={ON_0: scenes.load(scenes.process(7))}, seen={7: []})

    (stray,) = usage.strays
    assert (stray.origin, stray.gpu.index, stray.command) == (StrayOrigin.HOST, 0, "python3")


def test_a_process_of_an_unknown_pod_is_a_stray_that_names_it():
    usage = observe(
        loads={ON_0: scenes.load(scenes.process(7))}, seen={7: [CgroupRef("gone", "someid")]}
    )

    assert [(each.origin, each.pod) for each in usage.strays] == [(StrayOrigin.POD, "gone")]


def test_a_process_that_proc_does_not_show_is_told_apart():
    usage = observe(loads={ON_0: scenes.load(scenes.process(7))})

    assert [each.origin for each in usage.strays] == [StrayOrigin.UNSEEN]


def test_a_process_on_a_gpu_its_container_does_not_hold_is_reported():
    train = scenes.node_pod("train")
    usage = observe(
        train, loads={ON_1: scenes.load(scenes.process(7))}, seen={7: [scenes.inside(train)]}
    )

    (found,) = usage.trespasses
    assert (found.pod, found.container, found.gpu.index) == (train, "c0", 1)
    assert usage.containers[0].memory == 0


def test_a_container_may_not_use_the_gpu_of_its_neighbour_in_the_pod():
    train = scenes.node_pod("train", {"a": [builders.piece(0)], "b": [builders.piece(1)]})
    usage = observe(
        train, loads={ON_0: scenes.load(scenes.process(7))}, seen={7: [scenes.inside(train, "b")]}
    )

    assert [each.container for each in usage.trespasses] == ["b"]


def test_a_pod_without_gpus_on_a_gpu_trespasses():
    web = scenes.node_pod("web", {"c0": []}, asks=False)
    usage = observe(
        web, loads={ON_0: scenes.load(scenes.process(7))}, seen={7: [scenes.inside(web)]}
    )

    assert [each.pod.name for each in usage.trespasses] == ["web"]
    assert usage.containers == ()


def test_static_pods_are_found_under_the_uid_of_their_cgroup():
    static = scenes.node_pod("static", cgroup="0123456789abcdef0123456789abcdef")
    usage = observe(
        static,
        loads={ON_0: scenes.load(scenes.process(7))},
        seen={7: [CgroupRef("0123456789abcdef0123456789abcdef", "not-in-the-status-yet")]},
    )

    assert usage.containers[0].gpus[0].pids == (7,)


def test_the_outermost_known_place_decides():
    victim, forger = scenes.node_pod("victim"), scenes.node_pod("forger")
    usage = observe(
        victim,
        forger,
        loads={ON_0: scenes.load(scenes.process(7))},
        seen={7: [scenes.inside(forger), scenes.inside(victim)]},
    )

    assert [len(each.gpus[0].pids) for each in usage.containers] == [0, 1]


def test_a_node_that_is_itself_a_container_is_seen_through():
    train = scenes.node_pod("train")
    usage = observe(
        train,
        loads={ON_0: scenes.load(scenes.process(7))},
        seen={7: [CgroupRef(None, "outer"), scenes.inside(train)]},
    )

    assert usage.containers[0].gpus[0].pids == (7,)


@pytest.mark.parametrize(
    ("held", "owned"),
    [
        pytest.param({"a": [builders.piece(0)], "b": [builders.piece(1)]}, True, id="one-holder"),
        pytest.param({"a": [builders.piece(0)], "b": [builders.piece(0)]}, False, id="two-holders"),
    ],
)
def test_while_a_status_lags_only_an_unambiguous_gpu_tells_the_container(held, owned):
    train = scenes.node_pod("train", held)
    usage = observe(
        train,
        loads={ON_0: scenes.load(scenes.process(7))},
        seen={7: [CgroupRef(train.uid, "unheard-of")]},
    )

    assert (usage.containers[0].gpus[0].pids == (7,)) is owned
    assert bool(usage.trespasses) is not owned


def test_an_ended_container_has_no_usage_while_its_neighbour_has():
    train = scenes.node_pod(
        "train",
        {"prepare": [builders.piece(0)], "c0": [builders.piece(0)]},
        containers=[
            scenes.container("prepare", role=scenes.INIT, ended=True),
            scenes.container("c0"),
        ],
    )

    assert [each.container.name for each in observe(train).containers] == ["c0"]


def test_a_gpu_is_allocated_what_the_ledger_charges():
    train = scenes.node_pod(
        "train",
        {"prepare": [builders.piece(0, 50, 100)], "c0": [builders.piece(0, 30, 400)]},
        containers=[scenes.container("prepare", role=scenes.INIT), scenes.container("c0")],
    )

    device = observe(train, scenes.node_pod("other")).gpus[0]
    assert (device.cores, device.memory) == (50 + 30, 400 + 4096)


def test_nothing_is_known_of_a_gpu_that_does_not_answer():
    train = scenes.node_pod("train", {"c0": [builders.piece(0), builders.piece(1)]})
    usage = observe(train, loads={ON_0: scenes.load()})

    assert [each.answers for each in usage.containers[0].gpus] == [True, False]
    assert usage.gpus[1].load is None


def test_nothing_is_known_before_the_first_reading():
    usage = measure("n0", GPUS, [scenes.node_pod("train")], None)

    assert usage.at is None
    assert not usage.containers[0].gpus[0].answers


def test_an_allocation_on_a_gpu_the_node_lost_is_left_out():
    usage = observe(scenes.node_pod("train", {"c0": [builders.piece(5), builders.piece(1)]}))

    assert [each.allocated.gpu for each in usage.containers[0].gpus] == [1]


@st.composite
def node_with_processes(draw: st.DrawFn) -> tuple[list[NodePod], dict, dict]:
    """Pods that hold random GPUs, and processes that run anywhere at all."""
    pods = [
        scenes.node_pod(
            f"p{at}",
            {
                f"c{number}": [
                    builders.piece(gpu) for gpu in draw(st.sets(st.integers(0, 1), max_size=2))
                ]
                for number in range(draw(st.integers(1, 2)))
            },
        )
        for at in range(draw(st.integers(0, 4)))
    ]
    refs = [None, (), (CgroupRef("gone", "gone"),)]
    refs += [(CgroupRef(each.uid, member.id),) for each in pods for member in each.containers] + [
        (CgroupRef(each.uid, "new"),) for each in pods
    ]
    loads, seen = {}, {}
    for at, uuid in enumerate((ON_0, ON_1)):
        found = []
        for pid in range(at * 100, at * 100 + draw(st.integers(0, 6))):
            found.append(scenes.process(pid, draw(st.integers(0, 9999)), draw(st.integers(0, 100))))
            place = draw(st.sampled_from(refs))
            if place is not None:
                seen[pid] = place
        loads[uuid] = scenes.load(*found)
    return pods, loads, seen


@given(node_with_processes())
def test_every_process_is_counted_exactly_once(scene):
    pods, loads, seen = scene
    usage = observe(*pods, loads=loads, seen=seen)

    for device in GPUS:
        counted = Counter(
            pid
            for each in usage.containers
            for held in each.gpus
            if held.device is device
            for pid in held.pids
        )
        apart = [*usage.strays, *usage.trespasses]
        counted.update(each.process.pid for each in apart if each.gpu is device.gpu)
        assert counted == Counter(each.pid for each in loads[device.gpu.uuid].processes)


@given(node_with_processes())
def test_the_sums_match_what_the_driver_said(scene):
    pods, loads, seen = scene
    usage = observe(*pods, loads=loads, seen=seen)
    apart = [each.process for each in (*usage.strays, *usage.trespasses)]

    for quantity in ("memory", "cores"):
        told = sum(getattr(each, quantity) for load in loads.values() for each in load.processes)
        found = sum(getattr(each, quantity) for each in (*usage.containers, *apart))
        assert found == told


@given(node_with_processes())
def test_a_container_is_there_for_as_long_as_its_pod_holds_gpus(scene):
    pods, loads, seen = scene
    usage = observe(*pods, loads=loads, seen=seen)
    after = observe(*pods[1:], loads=loads, seen=seen)

    def names(told: NodeUsage) -> set[tuple[str, str, Slice]]:
        return {
            (each.pod.uid, each.container.name, held.allocated)
            for each in told.containers
            for held in each.gpus
        }

    assert {uid for uid, _, _ in names(usage)} == {
        each.uid for each in pods if each.allocation.containers
    }
    assert names(after) == {name for name in names(usage) if name[0] != "uid-p0"}


def test_process_on_a_gpu_of_a_claim_belongs_to_the_container_that_uses_it():
    piece = Slice(1, 30, 4096)
    claim = HeldClaim("claim", (piece,), {"c0": (piece,)})
    pods = [
        replace(scenes.node_pod(name), allocation=NO_ALLOCATION, asks=False, claims=(claim,))
        for name in ("train", "serve")
    ]

    usage = observe(
        *pods,
        loads={ON_1: scenes.load(scenes.process(7, 1000, 20))},
        seen={7: [scenes.inside(pods[0])]},
    )

    assert usage.trespasses == ()
    (held,) = usage.containers[0].gpus
    assert (held.memory, held.allocated) == (1000, piece)
    # Both use the one claim.
    assert (usage.gpus[1].cores, usage.gpus[1].memory) == (30, 4096)
