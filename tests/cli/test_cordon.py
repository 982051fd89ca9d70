import json

import pytest
from click.testing import CliRunner

import builders
from cli.gpushare_cluster import add_node, add_pod
from extender.living import Cluster, wait_until
from slicewise.cli.main import kubectl_plugin as main
from slicewise.dialects import CORDONED, GPUS, write_gpus
from slicewise_playground.cluster import Playground


@pytest.fixture
def cluster():
    with Playground() as made:
        annotations = {GPUS: write_gpus(builders.node("a", 2))}
        made.create("nodes", {"metadata": {"name": "a", "annotations": annotations}})
        yield made


def run(cluster, tmp_path, *words):
    path = cluster.write_kubeconfig(tmp_path / "kubeconfig")
    return CliRunner().invoke(main, [*words, "--kubeconfig", str(path)])


def listed(cluster, node="a"):
    return cluster.get("nodes", node, "")["metadata"]["annotations"].get(CORDONED)


@pytest.mark.parametrize("word", ["1", "GPU-a-1"])
def test_gpu_is_listed_by_its_uuid_however_it_was_named(cluster, tmp_path, word):
    result = run(cluster, tmp_path, "cordon", "a", word)

    assert result.exit_code == 0, result.output
    assert listed(cluster) == "GPU-a-1"
    assert "gpu 1 (NVIDIA A100-SXM4-40GB, GPU-a-1) of node a cordoned" in result.output


def test_gpu_that_was_cordoned_is_not_listed_twice(cluster, tmp_path):
    run(cluster, tmp_path, "cordon", "a", "0", "1")

    result = run(cluster, tmp_path, "cordon", "a", "GPU-a-0")

    assert "was cordoned already" in result.output
    assert listed(cluster) == "GPU-a-0,GPU-a-1"


def test_uncordon_takes_gpus_off_the_list(cluster, tmp_path):
    run(cluster, tmp_path, "cordon", "a", "0", "1")

    first = run(cluster, tmp_path, "uncordon", "a", "0")
    assert (first.exit_code, listed(cluster)) == (0, "GPU-a-1")
    assert "takes pods again" in first.output
    assert run(cluster, tmp_path, "uncordon", "a", "--all").exit_code == 0
    assert listed(cluster) is None


def test_uncordon_changes_the_node_twice_so_that_schedulers_look_again(cluster, tmp_path):
    run(cluster, tmp_path, "cordon", "a", "0", "1")
    before = cluster.writes("patch", "nodes")["/a"]

    run(cluster, tmp_path, "uncordon", "a", "0")
    assert (cluster.writes("patch", "nodes")["/a"] - before, listed(cluster)) == (2, "GPU-a-1")
    run(cluster, tmp_path, "uncordon", "a", "0")
    assert cluster.writes("patch", "nodes")["/a"] - before == 2


def test_gpu_of_a_node_without_uuids_is_listed_by_its_index(tmp_path):
    with Playground() as cluster:
        add_node(cluster, "plain", memory=30, count=2, annotations={"x": "y"})
        add_pod(cluster, "p", "plain", 3, idx="1", pod="3")

        result = run(cluster, tmp_path, "cordon", "plain", "1")

        assert listed(cluster, "plain") == "1"
        assert result.output == "gpu 1 of node plain cordoned; 1 pod stays: default/p\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(("cordon", "b", "0"), 'node "b" not found', id="node"),
        pytest.param(("cordon", "a", "7"), "has no GPU '7': expected one of 0 (GPU-a-0)", id="gpu"),
        pytest.param(("uncordon", "a", "7"), "has no GPU '7'", id="gpu-to-open"),
    ],
)
def test_what_is_not_there_is_an_error_and_writes_nothing(cluster, tmp_path, words, message):
    result = run(cluster, tmp_path, *words)

    assert result.exit_code == 1
    assert message in result.output
    assert listed(cluster) is None


def test_another_persons_change_is_kept(cluster, tmp_path):
    cluster.patch("nodes", "a", {"metadata": {"annotations": {CORDONED: " GPU-gone , 0"}}})

    run(cluster, tmp_path, "cordon", "a", "1")

    assert listed(cluster) == "GPU-gone,0,GPU-a-1"


def test_extender_gives_a_cordoned_gpu_to_nobody_new_and_counts_who_is_there(tmp_path):
    with Cluster(nodes=1, gpus=2) as living:
        living.wait_ready()
        share = {"slicewise.io/cores": "40", "slicewise.io/memory": "1024"}
        first = living.schedule(living.add("first", share))
        record = json.loads(first["metadata"]["annotations"]["slicewise.io/allocation"])
        held = record["containers"]["c0"][0][0]

        assert run(living.playground, tmp_path, "cordon", "n0", str(held)).exit_code == 0
        asked = living.add("probe", share)
        wait_until(lambda: _missing(living, "probe", held) == ["cordoned"])
        second = living.schedule(asked)

        record = json.loads(second["metadata"]["annotations"]["slicewise.io/allocation"])
        assert record["containers"]["c0"][0][0] == 1 - held
        assert living.schedule(living.add("whole", {"slicewise.io/gpu": "1"})) is None
        gpus = json.loads(living.ask("/gpushare-scheduler/inspect/n0")[1])["nodes"][0]["devs"]
        assert [gpu["usedGPU"] for gpu in gpus] == [1, 1]


def _missing(living, pod, gpu):
    answer = json.loads(living.ask(f"/explain?pod=default/{pod}")[1])
    return answer["nodes"][0]["gpus"][gpu]["missing"]
