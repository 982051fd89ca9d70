import json

import pytest
import yaml
from click.testing import CliRunner

import builders
from extender.living import Cluster, wait_until
from slicewise.cli.main import kubectl_plugin as main
from slicewise.dialects import GPUS, write_gpus
from slicewise.state.defrag.marks import AFTER_MOVES, SCALE_UP_DELAY

CAPACITY = {
    "cpu": "64",
    "memory": "512Gi",
    "pods": "110",
    "slicewise.io/gpu": "200",
    "slicewise.io/cores": "200",
    "slicewise.io/memory": "81920",
}
HALF = {"slicewise.io/cores": "50", "slicewise.io/memory": "1024"}
WHOLE = {"slicewise.io/cores": "100"}


def owned(**more):
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs"}
    return {"ownerReferences": [{**owner, "controller": True}], **more}


@pytest.fixture(scope="module")
def living():
    """One node of two GPUs, half of each used: by a pod of a ReplicaSet, and by one of nobody."""
    with Cluster(nodes=1, gpus=2, capacity=CAPACITY) as cluster:
        cluster.wait_ready()
        # Halves fill one GPU before the other.
        for name, meta in (("stays", {}), ("b", {}), ("moves", owned()), ("d", {})):
            cluster.schedule(cluster.add(name, HALF, **meta))
        for name in ("b", "d"):
            cluster.playground.delete("pods", name)
            wait_until(lambda name=name: name not in names(cluster))
        cluster.add("waits", WHOLE)
        yield cluster


def names(cluster):
    return {pod["metadata"]["name"] for pod in cluster.playground.objects("pods")}


def run(living, tmp_path, *words, command="defrag"):
    path = living.playground.write_kubeconfig(tmp_path / "kubeconfig")
    return CliRunner().invoke(main, [command, *words, "--kubeconfig", str(path)])


def test_plan_names_the_move_and_what_then_fits(living, tmp_path):
    result = run(living, tmp_path, "waits")

    assert result.exit_code == 0, result.output
    assert "default/waits: c0: a whole GPU" in result.output
    assert "fits after 1 move, and no fewer would do" in result.output
    assert "default/moves  n0 gpu 1  n0 gpu 0" in result.output
    assert "then: node n0, c0: all of gpu 1" in result.output
    assert "pods that are not moved: 1: has no controller" in result.output


def test_plan_is_the_same_for_scripts_and_for_all_pods_that_wait(living, tmp_path):
    [told] = json.loads(run(living, tmp_path, "-o", "json").stdout)

    [move] = told["moves"]
    assert (move["pod"], move["from"]["gpus"], move["to"]["gpus"]) == ("default/moves", "1", "0")
    assert told["then"]["node"] == "n0"
    assert told["exact"]
    assert told["notMoved"] == {"has no controller": 1}


def test_nothing_is_evicted_by_a_plan_alone(living, tmp_path):
    run(living, tmp_path, "waits")

    assert names(living) == {"stays", "moves", "waits"}


def test_pod_that_does_not_wait_has_no_plan(living, tmp_path):
    result = run(living, tmp_path, "moves")

    assert result.exit_code == 2
    assert "pod 'default/moves': no such pod asks for GPUs and has no node" in result.output


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        pytest.param(["--evict"], "name it", id="no-pod"),
        pytest.param(["waits", "--evict"], "pass --service or --url", id="no-extender"),
    ],
)
def test_evictions_need_a_pod_and_an_extender_that_keeps_room(living, tmp_path, words, complaint):
    result = run(living, tmp_path, *words)

    assert result.exit_code == 2
    assert complaint in result.output
    assert names(living) == {"stays", "moves", "waits"}


def test_why_names_the_few_moves_after_which_the_pod_fits(living, tmp_path):
    result = run(living, tmp_path, "waits", command="why")

    assert result.exit_code == 1
    assert (
        "would fit on node n0 after 1 move: default/moves from n0 to n0 "
        "(see kubectl slicewise defrag default/waits)"
    ) in result.output


@pytest.fixture
def huge(living):
    """Two more pods wait, of three GPUs each, which no node has."""
    for name in ("huge-0", "huge-1"):
        living.add(name, {"slicewise.io/gpu": "3"})
    yield
    for name in ("huge-0", "huge-1"):
        living.playground.delete("pods", name)
        wait_until(lambda name=name: name not in names(living))


def group(name, gpus, **spec):
    annotations = {GPUS: write_gpus(builders.node(name, gpus))}
    meta = {"name": name, "annotations": annotations}
    return {"kind": "Node", "metadata": meta, "spec": spec, "status": {"allocatable": CAPACITY}}


def ask_groups(living, tmp_path, *groups, words=()):
    path = tmp_path / "groups.yaml"
    path.write_text(yaml.safe_dump_all(groups))
    return run(living, tmp_path, "--node-template", str(path), *words, command="what-if")


@pytest.mark.usefixtures("huge")
def test_new_nodes_are_told_for_the_pods_that_moves_do_not_help(living, tmp_path):
    result = ask_groups(living, tmp_path, group("small", 2), group("large", 8))

    assert result.exit_code == 0, result.output
    assert "small: no pod that waits needs it and fits on it" in result.output
    assert "large: 1 new node for 2 pods\n  node 1: default/huge-0, default/huge-1" in result.output
    assert "default/waits: fits after 1 move, so no node has to be bought for it" in result.output
    assert "default/huge-0: needs a node of large" in result.output


@pytest.mark.usefixtures("huge")
def test_group_that_repels_the_pods_takes_none(living, tmp_path):
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    words = ("-o", "json")

    result = ask_groups(living, tmp_path, group("large", 8, taints=[taint]), words=words)

    told = json.loads(result.stdout)
    needs = {pod["pod"]: (pod["needs"], pod.get("groups")) for pod in told["pods"]}
    assert result.exit_code == 1
    assert told["groups"] == [{"group": "large", "nodes": 0, "pods": []}]
    assert needs["default/huge-0"] == ("node", [])
    assert needs["default/waits"] == ("moves", None)


def test_template_of_something_else_is_refused(living, tmp_path):
    result = ask_groups(living, tmp_path, {"kind": "Machine", "metadata": {"name": "m"}})

    assert result.exit_code == 2
    assert "kind 'Machine': expected Nodes" in result.output


@pytest.mark.usefixtures("huge")
def test_mark_stands_on_the_pod_that_moves_help_and_on_no_other(living, tmp_path):
    def marks(name):
        annotations = living.playground.get("pods", name)["metadata"].get("annotations") or {}
        return {key: annotations.get(key) for key in (AFTER_MOVES, SCALE_UP_DELAY)}

    first = run(living, tmp_path, "--mark")
    again = run(living, tmp_path, "--mark")

    assert "default/waits marked" in first.output
    assert "marked" not in again.output
    assert marks("waits")[AFTER_MOVES] == "1"
    assert int(marks("waits")[SCALE_UP_DELAY].removesuffix("s")) >= 600
    assert marks("huge-0") == {AFTER_MOVES: None, SCALE_UP_DELAY: None}
