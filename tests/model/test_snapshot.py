from hypothesis import given
from hypothesis import strategies as st

import builders
from slicewise.model import NodeState, Phase, Pod, Snapshot


def state(*holdings, **facts):
    held = NodeState.empty(builders.node(**facts))
    for holding in holdings:
        held = held.hold(holding)
    return held


def test_empty_node_is_free_and_untouched():
    empty = state()

    assert (empty.free_cores(0), empty.free_memory(0)) == (100, 40960)
    assert empty.untouched(0)


def test_holding_is_charged_to_its_gpus_and_host():
    held = state(builders.holding("u1", builders.piece(1, 30, 4096), host=builders.host(500, 64)))

    assert (held.free_cores(1), held.free_memory(1)) == (70, 36864)
    assert (held.cpu, held.host_memory) == (500, 64)
    assert held.untouched(0)
    assert not held.untouched(1)


def test_same_pod_held_again_replaces_itself():
    once = state(builders.holding("u1", builders.piece(0, 30, 4096)))

    again = once.hold(builders.holding("u1", builders.piece(1, 20, 1024)))

    assert (again.used_cores, again.used_memory) == ((0, 20), (0, 1024))
    assert len(again.holdings) == 1


def test_release_of_an_unknown_pod_changes_nothing():
    held = state(builders.holding("u1", builders.piece(0)))

    assert held.release("u2") is held


def test_order_of_holding_does_not_matter():
    first, second = (builders.holding(uid, builders.piece(0)) for uid in ("u1", "u2"))

    assert state(first, second) == state(second, first)


def test_defect_gpushare_1_overfull_gpu_shows_a_negative_rest():
    held = state(builders.holding("u1", builders.piece(0, 130, 50000)))

    assert (held.free_cores(0), held.free_memory(0)) == (-30, -9040)


def test_charge_on_a_gpu_the_node_lost_waits_for_its_return():
    held = state(builders.holding("u1", builders.piece(1, 30, 4096)))

    shrunk = held.renew(builders.node(gpus=1))

    assert shrunk.used_cores == (0,)
    assert shrunk.renew(builders.node()) == held


def test_renewal_with_the_same_node_is_the_same_state():
    held = state(builders.holding("u1", builders.piece(0)))

    assert held.renew(builders.node()) is held


pieces = st.builds(builders.piece, st.integers(0, 1), st.integers(0, 100), st.integers(0, 9999))


@given(st.lists(st.tuples(st.sampled_from("abc"), pieces, st.booleans()), max_size=20))
def test_sums_are_always_those_of_the_holdings(steps):
    held = state()
    for uid, piece, keep in steps:
        held = held.hold(builders.holding(uid, piece)) if keep else held.release(uid)

    for at in range(2):
        mine = [piece for each in held.holdings for piece in each.charges if piece.gpu == at]
        assert held.used_cores[at] == sum(piece.cores for piece in mine)
        assert held.used_memory[at] == sum(piece.memory for piece in mine)


def test_snapshot_finds_nodes_by_name():
    snapshot = builders.snapshot(*(builders.node(f"n{at:03}") for at in range(130)))

    assert len(snapshot) == len(list(snapshot)) == 130
    assert snapshot.get("n129").node.name == "n129"
    assert snapshot.get("n130") is None
    assert "n000" in snapshot


def test_empty_snapshot_has_no_nodes():
    assert list(Snapshot()) == []
    assert Snapshot().get("n0") is None


def test_terminal_phases_are_those_that_ended_for_good():
    assert [phase for phase in Phase if phase.terminal] == [Phase.SUCCEEDED, Phase.FAILED]


def test_holding_is_named_as_people_write_it():
    assert builders.holding("u1", name="train-0", namespace="ml").pod == "ml/train-0"


def test_pod_without_marks_has_none():
    pod = Pod("u", "ns", "p")

    assert (dict(pod.labels), dict(pod.annotations), pod.main_containers) == ({}, {}, ())


def test_snapshot_that_holds_one_more_pod_counts_its_usage_and_leaves_the_first_as_it_was():
    before = builders.snapshot(builders.node("a"), builders.node("b"))
    model = builders.gpu().model

    after = before.hold("b", builders.holding("u1", builders.piece(1, 30, 4096), namespace="ml"))

    assert after.get("b").free_cores(1) == 70
    assert after.usage.held("ml", model) == 30
    assert after.get("a") is before.get("a")
    assert (before.get("b").free_cores(1), before.usage.held("ml", model)) == (100, 0)


def test_snapshot_without_the_pod_again_is_equal_to_the_first():
    before = builders.snapshot(builders.node("a"))
    held = builders.holding("u1", builders.piece(0, 30, 4096), namespace="ml")

    assert before.hold("a", held).release("a", "u1") == before
    assert before.release("a", "u2") is before
    assert before.hold("elsewhere", held) is before


def test_pod_held_again_in_a_snapshot_replaces_itself():
    cluster = builders.snapshot(builders.node("a"))
    for cores in (30, 50):
        piece = builders.piece(0, cores, 1024)
        cluster = cluster.hold("a", builders.holding("u1", piece, namespace="ml"))

    assert cluster.get("a").free_cores(0) == 50
    assert cluster.usage.held("ml", builders.gpu().model) == 50
