"""GPUs become unhealthy by critical faults and lasting trouble, and return after a quiet period."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import gpu
from slicewise.nodeagent.gpus.health import GpuHealthTracker, HealthChange, RecoveryPolicy
from slicewise.nodeagent.gpus.xids import Severity, explain
from slicewise.nvml.driver import ECC, LOST, XID, GpuDevice, GpuFault

_POLICY = RecoveryPolicy(first_seconds=60, most_seconds=200, forget_seconds=1000)


def _gpus(count: int = 2, **troubles: str) -> tuple[GpuDevice, ...]:
    return tuple(
        GpuDevice(
            gpu(at, uuid=f"g{at}", healthy=f"g{at}" not in troubles),
            bus="",
            trouble=troubles.get(f"g{at}", ""),
        )
        for at in range(count)
    )


def _healthy(health: GpuHealthTracker, gpus=None) -> list[bool]:
    return [device.gpu.healthy for device in health.apply(gpus or _gpus())]


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109, 63, 92, 94, 154])
def test_xid_that_is_no_fault_of_the_gpu_leaves_it_alone(xid):
    health = GpuHealthTracker(_POLICY)

    assert health.hear([GpuFault("g0", XID, xid)], _gpus(), now=0) == []
    assert _healthy(health) == [True, True]


@pytest.mark.parametrize("xid", [48, 62, 64, 74, 79, 95, 119, 120, 140, 999])
def test_critical_or_unknown_xid_takes_its_gpu_alone_out_of_service(xid):
    health = GpuHealthTracker(_POLICY)

    changes = health.hear([GpuFault("g1", XID, xid)], _gpus(), now=0)

    assert [(change.uuid, change.healthy) for change in changes] == [("g1", False)]
    assert changes[0].reason.startswith(f"XID {xid}: ")
    assert _healthy(health) == [True, False]


@pytest.mark.parametrize("fault", [GpuFault("g0", ECC), GpuFault("g0", LOST, detail="gone")])
def test_ecc_errors_and_loss_take_a_gpu_out_of_service(fault):
    health = GpuHealthTracker(_POLICY)
    health.hear([fault], _gpus(), now=0)

    assert _healthy(health) == [False, True]


def test_fault_of_no_gpu_in_particular_takes_all_out_of_service():
    health = GpuHealthTracker(_POLICY)
    health.hear([GpuFault(None, XID, 79)], _gpus(), now=0)

    assert _healthy(health) == [False, False]


def test_gpu_returns_once_it_was_well_long_enough():
    health = GpuHealthTracker(_POLICY)
    health.hear([GpuFault("g0", XID, 48)], _gpus(), now=100)

    assert health.judge(_gpus(), now=159) == []
    assert health.judge(_gpus(), now=160) == [
        HealthChange(
            "g0", healthy=True, reason="no fault for 60 s since: XID 48: a double-bit memory error"
        )
    ]
    assert _healthy(health) == [True, True]
    assert not any(record.unhealthy for record in health.records.values())


def test_lasting_trouble_keeps_a_gpu_unhealthy_and_its_quiet_period_begins_when_it_ends():
    health, unhealthy = GpuHealthTracker(_POLICY), _gpus(g0="needs a reset")
    first = health.judge(unhealthy, now=0)
    for now in range(1, 500):
        assert health.judge(unhealthy, now=now) == []

    assert first == [HealthChange("g0", healthy=False, reason="needs a reset")]
    assert health.judge(_gpus(), now=558) == []
    assert [change.healthy for change in health.judge(_gpus(), now=559)] == [True]


def test_fault_during_the_quiet_period_begins_it_anew_without_counting_twice():
    health = GpuHealthTracker(_POLICY)
    health.hear([GpuFault("g0", XID, 48)], _gpus(), now=0)

    assert health.hear([GpuFault("g0", XID, 79)], _gpus(), now=50) == []
    assert health.judge(_gpus(), now=109) == []
    assert len(health.judge(_gpus(), now=110)) == 1


def test_flapping_lengthens_the_quiet_period_up_to_its_most():
    health, now, rests = GpuHealthTracker(_POLICY), 0, []
    for _ in range(4):
        health.hear([GpuFault("g0", XID, 79)], _gpus(), now=now)
        started = now
        while not health.judge(_gpus(), now=now):
            now += 1
        rests.append(now - started)

    assert rests == [60, 120, 200, 200]


def test_gpu_long_without_faults_starts_afresh():
    health = GpuHealthTracker(_POLICY)
    health.hear([GpuFault("g0", XID, 79)], _gpus(), now=0)
    health.judge(_gpus(), now=60)
    health.judge(_gpus(), now=1000)
    health.hear([GpuFault("g0", XID, 79)], _gpus(), now=2000)

    assert len(health.judge(_gpus(), now=2060)) == 1


def test_gpu_published_as_unhealthy_before_a_restart_stays_out_of_service_before_it_returns():
    health = GpuHealthTracker(_POLICY)
    health.resume([gpu(0, uuid="g0", healthy=False), gpu(1, uuid="g1")], now=0)

    assert _healthy(health) == [False, True]
    assert len(health.judge(_gpus(), now=60)) == 1


def test_gpu_that_is_not_listed_does_not_return():
    health = GpuHealthTracker(_POLICY)
    health.hear([GpuFault("g1", XID, 79)], _gpus(), now=0)

    assert health.judge(_gpus(1), now=1000) == []
    assert [change.uuid for change in health.judge(_gpus(), now=1001)] == ["g1"]


def test_next_return_is_known_beforehand():
    health = GpuHealthTracker(_POLICY)
    assert health.due(now=0) == inf
    health.hear([GpuFault("g0", XID, 48)], _gpus(), now=0)
    health.hear([GpuFault("g1", XID, 48)], _gpus(), now=20)

    assert (health.due(now=30), health.due(now=70)) == (30, 0)


def test_trouble_says_why_a_gpu_is_unhealthy():
    health = GpuHealthTracker(_POLICY)
    health.hear([GpuFault("g0", XID, 64)], _gpus(), now=0)

    assert health.apply(_gpus())[0].trouble == "XID 64: memory rows could not be replaced"


@given(
    st.lists(
        st.tuples(
            st.integers(0, 300),
            st.sampled_from(["g0", "g1"]),
            st.sampled_from([13, 31, 48, 79, 94]),
        ),
        max_size=30,
    )
)
def test_gpu_is_unhealthy_exactly_for_its_quiet_period_after_the_last_critical_fault(events):
    health, now, last = GpuHealthTracker(RecoveryPolicy(60, 60, 10**9)), 0, {}
    for pause, uuid, xid in events:
        now += pause
        health.judge(_gpus(), now)
        health.hear([GpuFault(uuid, XID, xid)], _gpus(), now)
        if explain(xid).severity is Severity.CRITICAL:
            last[uuid] = now
        expected = [now - last.get(each, -60) >= 60 for each in ("g0", "g1")]
        assert _healthy(health) == expected
