import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.lines import KEEP
from slicewise.kube.objects import (
    KeyFilter,
    NodeBody,
    ObjectReader,
    PodBody,
    read_version,
)
from slicewise.model import NodeNotice, Phase, Role
from slicewise.model.intern_pool import InternPool


def body(**fields):
    pod = {
        "metadata": {"name": "p", "namespace": "ml", "uid": "u1", "resourceVersion": "7"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    for part, values in fields.items():
        pod.setdefault(part, {}).update(values)
    return msgspec.json.decode(msgspec.json.encode(pod), type=PodBody)


def read(**fields):
    return ObjectReader(KEEP).read_pod(body(**fields))


def test_pod_is_read_with_its_names_place_and_state():
    pod = read(
        spec={"nodeName": "n1", "priority": -5},
        status={"phase": "Running"},
        metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"},
    )

    assert (pod.uid, pod.namespace, pod.name, pod.version) == ("u1", "ml", "p", 7)
    assert (pod.node, pod.priority, pod.phase, pod.deleting) == ("n1", -5, Phase.RUNNING, True)


def test_init_containers_come_first_and_sidecars_are_told_by_restart_policy():
    early = [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]
    pod = read(spec={"initContainers": early})

    roles = [(each.name, each.role) for each in pod.containers]
    assert roles == [("i", Role.INIT), ("s", Role.SIDECAR), ("c", Role.MAIN)]


def test_only_wanted_keys_are_kept():
    amounts = {"nvidia.com/gpu": "1", "cpu": "500m", "ephemeral-storage": "1Gi"}
    pod = read(
        metadata={
            "labels": {"app": "x", "slicewise.io/pool": "a"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "gpu": "0"},
        },
        spec={"containers": [{"name": "c", "resources": {"limits": amounts}}]},
    )

    assert pod.labels == {"slicewise.io/pool": "a"}
    assert pod.annotations == {"gpu": "0"}
    assert pod.containers[0].limits == {"nvidia.com/gpu": "1", "cpu": "500m"}


def test_equal_containers_labels_and_names_are_one_object():
    reader = ObjectReader(KEEP)
    spec = {
        "nodeName": "n1",
        "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    }
    labels = {"labels": {"slicewise.io/pool": "a"}}
    one, two = (reader.read_pod(body(spec=spec, metadata=labels)) for _ in range(2))

    assert one.containers is two.containers
    assert one.labels is two.labels
    assert one.node is two.node
    assert one.namespace is two.namespace


def test_sharing_never_mixes_up_pods_however_often_the_shelf_is_cleared():
    reader = ObjectReader(KEEP)
    reader._shelf = InternPool(3)
    for number in range(50):
        limits = {"nvidia.com/gpu": str(number % 7), "cpu": str(number % 3)}
        spec = {"containers": [{"name": f"c{number % 4}", "resources": {"limits": limits}}]}

        (container,) = reader.read_pod(body(spec=spec)).containers

        assert (container.name, container.limits) == (f"c{number % 4}", limits)


@pytest.mark.parametrize(
    ("phase", "read_as"),
    [("", Phase.PENDING), ("Failed", Phase.FAILED), ("Dreaming", Phase.UNKNOWN)],
)
def test_phase_is_read_by_its_word(phase, read_as):
    assert read(status={"phase": phase}).phase is read_as


def test_node_is_read_as_its_agents_published_it():
    node = {
        "metadata": {
            "name": "n1",
            "resourceVersion": "9",
            "annotations": {"slicewise.io/gpus": "[]", "volumes": "x"},
        },
        "status": {
            "capacity": {"nvidia.com/gpu": 8, "pods": "110"},
            "allocatable": {"cpu": "4", "memory": "1Gi"},
            "images": [{"names": ["large"]}],
        },
    }
    decoded = msgspec.json.decode(msgspec.json.encode(node), type=NodeBody)

    assert ObjectReader(KEEP).read_node_notice(decoded) == NodeNotice(
        name="n1",
        annotations={"slicewise.io/gpus": "[]"},
        capacity={"nvidia.com/gpu": 8},
        allocatable={"cpu": "4", "memory": "1Gi"},
        version=9,
    )


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        pytest.param([{"type": "Ready", "status": "True"}], True, id="well"),
        pytest.param([{"type": "Ready", "status": "Unknown"}], False, id="silent"),
        pytest.param([{"type": "Ready", "status": "False"}], False, id="not-ready"),
        pytest.param([{"type": "DiskPressure", "status": "False"}], True, id="never-said"),
        pytest.param(None, True, id="no-conditions"),
    ],
)
def test_node_is_ready_as_its_condition_says(conditions, ready):
    body = {"metadata": {"name": "a1"}, "status": {"conditions": conditions}}

    notice = ObjectReader(KeyFilter()).read_node_notice(msgspec.convert(body, NodeBody))

    assert (notice.ready, notice.unschedulable) == (ready, False)


def test_closed_node_is_told_apart():
    body = {"metadata": {"name": "a1"}, "spec": {"unschedulable": True}}

    assert ObjectReader(KeyFilter()).read_node_notice(msgspec.convert(body, NodeBody)).unschedulable


def test_versions_are_numbers_that_grow():
    assert (read_version("12"), read_version(""), read_version("abc")) == (12, 0, 0)


@given(st.dictionaries(st.sampled_from(["cpu", "nvidia.com/gpu", "other"]), st.text(max_size=3)))
def test_kept_amounts_are_exactly_those_with_a_wanted_prefix(amounts):
    keep = KeyFilter(amounts=("cpu", "nvidia.com/"))
    spec = {"containers": [{"name": "c", "resources": {"requests": amounts}}]}

    (container,) = ObjectReader(keep).read_pod(body(spec=spec)).containers

    assert container.requests == {key: amounts[key] for key in amounts if key != "other"}
