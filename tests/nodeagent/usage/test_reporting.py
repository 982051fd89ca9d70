from dataclasses import replace

import builders
from nodeagent import scenes
from slicewise.kubelet.holders import Holder
from slicewise.nodeagent.usage.node_usage import measure
from slicewise.nodeagent.usage.reporting import add_holders, write_report
from slicewise.reports import DeviceReport, MeasuredUse, NodeReport

GPUS = (scenes.device(0), scenes.device(1))


def report(*pods, loads=None, seen=None, gpus=GPUS) -> NodeReport:
    return write_report(measure("n0", gpus, pods, scenes.reading(loads or {}, seen)), "580.95.05")


def test_a_share_is_reported_with_its_allocation_and_its_use():
    train = scenes.node_pod("train")
    loads = {"GPU-0": scenes.load(scenes.process(7, 512, 20))}
    told = report(train, loads=loads, seen={7: [scenes.inside(train)]})
    (pod,) = told.pods

    assert (pod.key, pod.uid) == ("ml/train", "uid-train")
    assert pod.containers[0].devices == (
        DeviceReport(gpu="GPU-0", cores=30, memory_mib=4096, use=MeasuredUse(512, 20), pids=(7,)),
    )
    assert told.busy == {"GPU-0"}


def test_processes_that_hold_nothing_of_their_gpu_are_told_by_where_they_run():
    train = scenes.node_pod("train", {"c0": [builders.piece(1)]})
    loads = {"GPU-0": scenes.load(scenes.process(7, 512), scenes.process(8, 64))}
    told = report(train, loads=loads, seen={7: [scenes.inside(train)], 8: []})

    found = {each.pid: each for each in told.processes}
    assert (found[7].origin, found[7].pod, found[7].container) == ("trespass", "ml/train", "c0")
    assert (found[8].origin, found[8].gpu, found[8].memory_mib) == ("host", "GPU-0", 64)
    assert told.sampled_at is not None
    assert told.gpus[0].processes == 2
    assert (told.gpus[1].allocated_cores, told.gpus[1].processes) == (30, None)


def test_a_whole_gpu_is_told_without_amounts():
    told = report(scenes.node_pod("train", {"c0": [builders.piece(1, 100, 40960)]}))

    assert told.pods[0].containers[0].devices == (DeviceReport(gpu="GPU-1"),)


def test_gpus_that_do_not_answer_have_no_use():
    unhealthy = replace(GPUS[1], gpu=replace(GPUS[1].gpu, healthy=False), trouble="lost")
    loads = {"GPU-0": scenes.load(memory=100, cores=3, temperature=40)}
    well, lost = report(gpus=(GPUS[0], unhealthy), loads=loads).gpus

    assert (well.healthy, well.use, well.temperature) == (True, MeasuredUse(100, 3), 40)
    assert (lost.healthy, lost.why, lost.use) == (False, "lost", None)


def test_containers_and_pods_without_gpus_are_left_out():
    told = report(
        scenes.node_pod("train", {"main": [builders.piece(0)], "log": []}),
        scenes.node_pod("web", {"c0": []}),
    )

    assert [each.key for each in told.pods] == ["ml/train"]
    assert [each.name for each in told.pods[0].containers] == ["main"]


def test_gpus_of_nvidias_own_plugin_are_told_by_the_kubelet_all_of_them():
    held = Holder("ml", "old", "main", {"nvidia.com/gpu": frozenset({"GPU-1", "GPU-0"})})
    (pod,) = add_holders(report(), [held]).pods

    assert pod.key == "ml/old"
    assert [device.gpu for device in pod.containers[0].devices] == ["GPU-0", "GPU-1"]


def test_replicas_are_told_by_their_gpu_and_their_own_name():
    held = Holder("ml", "old", "main", {"nvidia.com/gpu.shared": frozenset({"GPU-0::3"})})
    (pod,) = add_holders(report(), [held]).pods

    assert pod.containers[0].devices == (DeviceReport(gpu="GPU-0", id="GPU-0::3"),)


def test_pods_with_a_record_and_devices_of_others_are_not_taken_from_the_kubelet():
    told = report(scenes.node_pod("train"))
    holders = [
        Holder("ml", "train", "c0", {"nvidia.com/gpu": frozenset({"GPU-1"})}),
        Holder("ml", "nic", "main", {"rdma/hca": frozenset({"x"})}),
    ]

    assert add_holders(told, holders) is told
