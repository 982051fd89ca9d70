import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicewise.httpd.limiter import ConnectionLimiter, OverloadError, name_peer
from slicewise.httpd.server import fit_limits
from slicewise.httpd.settings import ConnectionLimits, ServerSettings


class Scene:
    """A limiter with a clock of its own, and the connections that it has cut."""

    def __init__(self, **limits):
        self.now = 0.0
        self.limiter = ConnectionLimiter(ConnectionLimits(**limits), clock=lambda: self.now)
        self.cut = []

    def admit(self, peer, name=""):
        self.now += 1e-3
        return self.limiter.admit(peer, lambda: self.cut.append(name or peer))


def test_address_with_most_connections_gives_way_to_others():
    scene = Scene(connections=4, connections_per_peer=4)
    for at in range(3):
        scene.admit("10.0.0.1", f"flood-{at}")
    scene.admit("10.0.0.2")

    assert scene.admit("10.0.0.3") is not None
    assert scene.cut == ["flood-0"]


def test_new_connection_of_one_address_takes_the_place_of_its_own_longest_waiting():
    scene = Scene(connections=10, connections_per_peer=2)
    for at in range(3):
        scene.admit("10.0.0.1", f"own-{at}")
    scene.admit("10.0.0.2")

    assert scene.cut == ["own-0"]
    assert scene.limiter.cuts == {"replaced": 1}


def test_connections_that_were_served_give_way_last():
    scene = Scene(connections=2, connections_per_peer=2)
    scheduler = scene.admit("127.0.0.1", "scheduler")
    scheduler.served = 1
    scheduler.wait("idle", 100)
    for at in range(5):
        scene.admit("127.0.0.1", f"silent-{at}")

    assert scene.cut == [f"silent-{at}" for at in range(4)]


def test_connections_being_answered_never_give_way():
    scene = Scene(connections=2, connections_per_peer=2)
    for _ in range(2):
        scene.admit("10.0.0.1").work()

    assert scene.admit("10.0.0.1") is None
    assert scene.admit("10.0.0.2") is None
    assert scene.cut == []
    assert scene.limiter.cuts == {"refused": 2}


def test_client_that_lets_its_time_pass_is_cut():
    scene = Scene(head_seconds=10)
    scene.admit("10.0.0.1").wait("head", 10)
    busy = scene.admit("10.0.0.2")
    busy.work()
    scene.now = 9
    scene.limiter.sweep()
    assert scene.cut == []

    scene.now = 11
    scene.limiter.sweep()

    assert scene.cut == ["10.0.0.1"]
    assert scene.limiter.count == 1


def test_time_in_which_nobody_could_be_heard_does_not_count():
    scene = Scene(head_seconds=10)
    scene.admit("10.0.0.1").wait("head", 10)
    scene.now = 15
    scene.limiter.extend(6.0)
    scene.limiter.sweep()
    assert scene.cut == []

    scene.now = 17
    scene.limiter.sweep()
    assert scene.cut == ["10.0.0.1"]


@pytest.mark.parametrize(("left", "cut"), [(0, False), (850_000, False), (999_000, True)])
def test_answer_must_be_read_at_the_least_rate(left, cut):
    scene = Scene(body_seconds=10, bytes_per_second=10_000)
    unsent = [1_000_000]
    tracked = scene.admit("10.0.0.1")
    tracked.work()
    tracked.watch_unsent(lambda: unsent[0])
    unsent[0] = left
    scene.now += 10.0
    scene.limiter.sweep()

    assert bool(scene.cut) is cut


def test_body_that_takes_longest_is_given_up_for_others():
    scene = Scene(bodies_bytes=100)
    slow, quick = scene.admit("10.0.0.1", "slow"), scene.admit("10.0.0.2", "quick")
    scene.limiter.take_body(slow, 90)
    scene.limiter.take_body(quick, 20)

    assert scene.cut == ["slow"]
    scene.limiter.take_body(quick, 80)
    with pytest.raises(OverloadError):
        scene.limiter.take_body(quick, 1)


def test_bodies_of_requests_being_answered_are_kept():
    scene = Scene(bodies_bytes=100)
    answered, late = scene.admit("10.0.0.1"), scene.admit("10.0.0.2")
    scene.limiter.take_body(answered, 90)
    answered.work()

    with pytest.raises(OverloadError, match="too many request bodies"):
        scene.limiter.take_body(late, 20)
    scene.limiter.release_body(answered)
    scene.limiter.release_body(late)
    scene.limiter.take_body(late, 100)


def test_limits_stay_within_the_descriptors_of_the_process(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    fitted = fit_limits(ServerSettings(max_body_bytes=1 << 30))

    assert (fitted.connections, fitted.connections_per_peer) == (128, 64)
    assert fitted.bodies_bytes == 2 << 30


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
    ],
)
def test_peer_is_an_address_or_an_ipv6_network(one, other, same):
    assert (name_peer(one) == name_peer(other)) is same


STEPS = ("admit", "work", "wait", "forget", "body")


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(STEPS))))
def test_counts_stay_within_limits_whatever_clients_do(steps):
    scene = Scene(connections=6, connections_per_peer=3, bodies_bytes=50)
    alive = []
    for number, step in steps:
        peer = f"10.0.0.{number}"
        if step == "admit" and (new := scene.admit(peer)) is not None:
            alive.append(new)
        elif alive:
            chosen = alive[number % len(alive)]
            match step:
                case "work":
                    chosen.work()
                case "wait":
                    chosen.wait("head", number)
                case "forget":
                    scene.limiter.forget(chosen)
                    alive.remove(chosen)
                case "body":
                    try:
                        scene.limiter.take_body(chosen, 10 * number)
                    except OverloadError:
                        scene.limiter.release_body(chosen)
        scene.now += 0.5
        scene.limiter.sweep()
        held = [len(list(peer)) for peer in scene.limiter._peers.values()]
        assert held == [peer.count for peer in scene.limiter._peers.values()]
        assert scene.limiter.count == sum(held) <= 6
        assert all(0 < each <= 3 for each in held)
        assert sum(each.body_bytes for each in scene.limiter._bodies) <= 50
