import json
from dataclasses import replace

import builders
from nodeagent import scenes
from slicewise.dialects import ALLOCATION
from slicewise.kube.local_pods import LocalContainer, LocalPod
from slicewise.kube.watch import Gone, Seen
from slicewise.nodeagent.node_pods import NodePods, read_node_pod

GPUS = [scenes.device(0), scenes.device(1)]


def local(uid: str = "u0", record: str | None = None, **limits: int) -> LocalPod:
    limits = limits or {"slicewise.io/cores": 30, "slicewise.io/memory": 4096}
    annotations = {} if record is None else {ALLOCATION: record}
    pod = builders.pod(limits=limits, uid=uid, name=uid, annotations=annotations, node="n0")
    return LocalPod(pod, (LocalContainer("c0", id="i0", running=True),))


def record(gpu: int, uuid: str) -> str:
    return json.dumps({"containers": {"c0": [[gpu, uuid, 30, 4096]]}, "node": "n0"})


def pods(*pods: LocalPod, gpus=GPUS) -> NodePods:
    found = NodePods("n0")
    found.set_gpus(gpus)
    found.apply([Seen(pod, new=True) for pod in pods])
    return found


def test_a_pod_holds_what_its_record_says():
    (pod,) = pods(local(record=record(1, "GPU-1"))).pods()

    assert pod.held("c0") == (builders.piece(1),)
    assert (pod.asks, pod.trouble) == (True, None)


def test_a_pod_without_a_record_says_so():
    (pod,) = pods(local()).pods()

    assert (pod.held("c0"), pod.asks) == ((), True)
    assert "no allocation" in pod.trouble


def test_an_unreadable_record_is_named():
    (pod,) = pods(local(record="{")).pods()

    assert ALLOCATION in pod.trouble


def test_a_pod_that_asks_for_nothing_is_no_trouble():
    pod = read_node_pod(local(cpu=1), builders.node())

    assert (pod.asks, pod.trouble) == (False, None)


def test_pods_are_read_anew_when_gpus_change_places():
    found = pods(local(record=record(0, "GPU-0")))
    swapped = [scenes.device(0, uuid="GPU-1"), scenes.device(1, uuid="GPU-0")]
    found.set_gpus(swapped)

    (pod,) = found.pods()
    assert pod.held("c0") == (builders.piece(1),)


def test_health_is_taken_over_without_losing_pods():
    found = pods(local(record=record(0, "GPU-0")))
    unhealthy = replace(GPUS[0], gpu=replace(GPUS[0].gpu, healthy=False))
    found.set_gpus([unhealthy, GPUS[1]])

    (pod,) = found.pods()
    assert not found.gpus()[0].gpu.healthy
    assert pod.held("c0") == (builders.piece(0),)


def test_a_pod_that_left_is_remembered_for_a_while():
    now = [100.0]
    found = NodePods("n0", clock=lambda: now[0])
    found.apply([Seen(local("u0"), new=True), Gone("u0", 5), Gone("never-here", 6)])
    soon = found.departed()
    now[0] += 200

    assert (soon, found.departed()) == ({"u0"}, frozenset())


def test_a_pod_that_is_gone_leaves():
    found = pods(local("u0"), local("u1"))
    found.apply([Gone("u0", 5)])

    assert [each.uid for each in found.pods()] == ["u1"]
    assert found.by_uid("u0") is None


def test_a_pod_that_is_gone_is_not_learned_again_from_an_answer_that_comes_late():
    found = pods(local(record=record(0, "GPU-0")))
    found.apply([Gone("u0", 9)])
    found.put(local(record=record(0, "GPU-0")))

    assert (found.by_uid("u0"), found.pods()) == (None, ())


def test_a_quantity_that_cannot_be_read_is_named_and_stops_no_change_of_gpus():
    bad = local("u1", **{"slicewise.io/cores": "8Ei", "slicewise.io/memory": 1})
    found = pods(bad, local(record=record(0, "GPU-0")))
    found.set_gpus([scenes.device(0)])

    troubles = {pod.uid: pod.trouble for pod in found.pods()}
    assert "slicewise.io/cores=8Ei" in troubles["u1"]
    assert troubles["u0"] is None
