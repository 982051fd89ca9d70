"""A container's memory limit holds for every way of taking memory, and for all its processes."""

import os
import signal

import pytest

from slicewise_testbed.cuda import (
    MIB,
    NOT_PERMITTED,
    OTHER_UUID,
    OUT_OF_MEMORY,
    SUCCESS,
    UUID,
    Container,
    CudaMachine,
    GrantedGpu,
)

WAYS = ("alloc", "pitch", "managed", "async", "create", "array", "array3d", "external")


@pytest.mark.parametrize("how", ["dlsym", "next", "ask"])
def test_program_sees_its_limit_as_the_size_of_the_gpu(start, container, how):
    program = start(container, how).start()

    assert program.call("info") == [SUCCESS, 100 * MIB, 100 * MIB]
    assert program.call("total", 0) == [SUCCESS, 100 * MIB]


@pytest.mark.parametrize("how", ["dlsym", "next", "ask"])
@pytest.mark.parametrize("way", WAYS)
def test_allocation_over_the_limit_fails_and_a_free_makes_room(start, container, way, how):
    program = start(container, how).start()

    assert program.result(way, 90 * MIB) == SUCCESS
    assert program.result(way, 12 * MIB) == OUT_OF_MEMORY
    assert program.result("free", 0) == SUCCESS
    assert program.result(way, 96 * MIB) == SUCCESS
    assert container.device(56) == 1, "one refusal"


def test_what_is_freed_is_whole_again(start, container):
    program = start(container).start()
    for number, way in enumerate(WAYS):
        assert program.result(way, 8 * MIB) == SUCCESS
        assert program.result("free", number) == SUCCESS

    assert program.result("alloc", 100 * MIB) == SUCCESS
    assert container.slot(64) == 100 * MIB, "nothing else in use"
    assert container.slot(192) == 0, "nothing asked for"


def test_processes_of_one_container_share_the_limit(start, container):
    one, other = start(container).start(), start(container).start()

    assert one.result("alloc", 60 * MIB) == SUCCESS
    assert other.call("info") == [SUCCESS, 40 * MIB, 100 * MIB]
    assert other.result("alloc", 60 * MIB) == OUT_OF_MEMORY
    one.kill()
    assert other.result("alloc", 60 * MIB) == SUCCESS
    assert container.active() == 1


def test_limit_does_not_hold_in_another_container(start, container, tmp_path):
    other = Container(tmp_path / "other", (GrantedGpu(memory=200 * MIB),))

    assert start(container).start().result("alloc", 100 * MIB) == SUCCESS
    assert start(other).start().result("alloc", 200 * MIB) == SUCCESS


def test_program_without_limits_is_left_alone(start, machine):
    program = start(None, LD_PRELOAD=machine.environment(Container(machine.folder))["LD_PRELOAD"])

    assert program.start().result("alloc", 8192 * MIB) == SUCCESS


def test_gpu_that_was_not_granted_is_refused(tmp_path, start):
    machine = CudaMachine(tmp_path, [f"gpu {OTHER_UUID} 8192", f"gpu {UUID} 8192"])
    program = start(Container(tmp_path / "limit"), on=machine).start()

    assert program.result("alloc", MIB) == NOT_PERMITTED
    assert program.result("launch", 1, -1, "k") == NOT_PERMITTED
    assert program.result("device", 1) == SUCCESS
    assert program.call("info") == [SUCCESS, 100 * MIB, 100 * MIB]
    assert program.result("create", 2 * MIB, 0) == NOT_PERMITTED
    assert program.result("create", 2 * MIB, 1) == SUCCESS


def test_host_memory_is_never_charged(start, container):
    program = start(container).start()

    assert program.result("hostcreate", 512 * MIB, 99) == SUCCESS
    assert container.slot(64) == 0


def test_mapped_memory_stays_charged_after_its_handle_is_released(start, container):
    program = start(container).start()

    assert program.result("create", 90 * MIB, 0) == SUCCESS
    assert program.result("map", 0, 90 * MIB) == SUCCESS
    assert program.result("free", 0) == SUCCESS
    assert program.result("alloc", 20 * MIB) == OUT_OF_MEMORY
    assert program.result("unmap", 1) == SUCCESS
    assert program.result("alloc", 100 * MIB) == SUCCESS


def test_pool_is_charged_what_it_keeps_and_trimmed_before_a_refusal(start, container):
    program = start(container).start()
    assert program.result("pool", 0) == SUCCESS
    assert program.result("threshold", 0) == SUCCESS
    assert program.result("frompool", 90 * MIB, 0) == SUCCESS
    assert program.result("freeasync", 1) == SUCCESS

    assert container.slot(64) == 90 * MIB, "the pool keeps what was freed"
    assert program.result("frompool", 80 * MIB, 0) == SUCCESS
    assert container.slot(64) == 90 * MIB, "and gives it out again"
    assert program.result("free", 2) == SUCCESS
    assert program.result("alloc", 95 * MIB) == SUCCESS
    assert container.slot(64) == 95 * MIB


def test_context_takes_its_memory_with_it(start, container):
    program = start(container).start()
    assert program.result("alloc", 50 * MIB) == SUCCESS
    assert program.result("array", 10 * MIB) == SUCCESS

    assert program.result("reset", 0) == SUCCESS
    assert container.slot(64) == 0
    assert program.result("device", 0) == SUCCESS
    assert program.result("alloc", 100 * MIB) == SUCCESS


def test_graph_memory_is_checked_when_added_and_counted_when_launched(start, container):
    program = start(container).start()

    assert program.result("node", 200 * MIB) == OUT_OF_MEMORY
    assert program.result("node", 60 * MIB) == SUCCESS
    assert program.result("instantiate") == SUCCESS
    assert program.result("graph", 1) == SUCCESS
    assert program.result("alloc", 50 * MIB) == OUT_OF_MEMORY


def test_contexts_and_overhead_are_counted_before_memory_is_given_out(start, tmp_path):
    gpu = GrantedGpu(context=30 * MIB, overhead=40 * MIB)
    container = Container(tmp_path / "limit", (gpu,))
    one, other = start(container).start(), start(container).start()

    assert one.call("info")[1] == 60 * MIB, "the overhead that the agent saw is more"
    assert other.call("info")[1] == 40 * MIB, "two contexts are more than that overhead"


def test_free_of_an_unknown_pointer_is_the_drivers_business(start, container):
    program = start(container).start()

    assert program.result("freeat", 4096) == 1
    assert program.result("freeat", 0) == SUCCESS


@pytest.mark.parametrize("function", ["cuMemAlloc_v2", "cuMemFree_v2"])
def test_failure_of_the_driver_leaves_the_sums_right(tmp_path, start, container, function):
    machine = CudaMachine(tmp_path, [f"gpu {UUID} 16384", f"fail {function} 1 999"])
    program = start(container, on=machine).start()
    results = [program.result("alloc", 8 * MIB)]
    results += [program.result("free", 0)] if results == [SUCCESS] else []

    assert results[-1] == 999
    assert container.slot(192) == 0
    assert container.slot(64) == (8 * MIB if function == "cuMemFree_v2" else 0)


def test_child_that_outlives_its_parent_does_not_keep_its_memory(start, container):
    program, other = start(container).start(), start(container).start()
    assert program.result("alloc", 90 * MIB) == SUCCESS
    child = program.call("fork")[1]
    try:
        program.kill()
        assert other.result("alloc", 100 * MIB) == SUCCESS
    finally:
        os.kill(child, signal.SIGKILL)


def test_agents_new_limit_is_met_by_the_next_refusal(start, container):
    program = start(container).start()
    assert program.result("alloc", 100 * MIB) == SUCCESS

    container.feed(GrantedGpu(memory=300 * MIB))

    assert program.result("alloc", 150 * MIB) == SUCCESS


def test_driver_tier_is_shown_but_not_gated(start, tmp_path):
    container = Container(tmp_path / "limit", (GrantedGpu(),), flags=2 | 4)
    program = start(container).start()

    assert program.result("alloc", 150 * MIB) == SUCCESS
    assert container.slot(64) == 150 * MIB


def test_variables_of_hami_only_lower_a_grant(start, container):
    lower = start(container, CUDA_DEVICE_MEMORY_LIMIT="40m").start()
    higher = start(container, CUDA_DEVICE_MEMORY_LIMIT_0="4g").start()

    assert lower.call("info")[2] == 40 * MIB
    assert higher.call("info")[2] == 100 * MIB


def test_variables_of_hami_limit_without_a_grant(start, machine, container):
    preload = machine.environment(container)["LD_PRELOAD"]
    program = start(None, LD_PRELOAD=preload, CUDA_DEVICE_MEMORY_LIMIT="64M").start()

    assert program.call("info") == [SUCCESS, 64 * MIB, 64 * MIB]
    assert program.result("alloc", 65 * MIB) == OUT_OF_MEMORY
