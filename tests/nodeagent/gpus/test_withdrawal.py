import json

import pytest
from click.testing import CliRunner

from slicewise.cli.main import kubectl_plugin as main
from slicewise.dialects import CORDONED, GPUS
from slicewise.nodeagent.gpus.publisher import PUBLISHED
from slicewise.nodeagent.gpus.withdrawal import remove_specs
from slicewise_playground.cluster import Playground

OURS = {
    "labels": ["nvidia.com/gpu.product", "slicewise.io/model"],
    "annotations": [GPUS, "slicewise.io/agent"],
    "amounts": ["aliyun.com/gpu-count", "elasticgpu.io/gpu-memory"],
}
BEFORE = {
    "metadata": {"labels": {"zone": "a", "nvidia.com/cuda": "12"}, "annotations": {"note": "kept"}},
    "status": {"capacity": {"cpu": "8", "nvidia.com/gpu": "4"}, "allocatable": {"cpu": "8"}},
}
PUBLISHED_NODE = {
    "metadata": {
        "labels": {**BEFORE["metadata"]["labels"], **dict.fromkeys(OURS["labels"], "x")},
        "annotations": {
            **BEFORE["metadata"]["annotations"],
            **dict.fromkeys(OURS["annotations"], "[]"),
            PUBLISHED: json.dumps(OURS),
            CORDONED: "GPU-1",
        },
    },
    "status": {
        "capacity": {
            **BEFORE["status"]["capacity"],
            **dict.fromkeys(OURS["amounts"], "4"),
            "slicewise.io/cores": "0",
        },
        "allocatable": {"cpu": "8", "aliyun.com/gpu-count": "4", "slicewise.io/cores": "0"},
    },
}


@pytest.fixture
def cluster():
    with Playground() as made:
        for name in ("a", "b"):
            body = {**PUBLISHED_NODE, "metadata": {**PUBLISHED_NODE["metadata"], "name": name}}
            made.create("nodes", body)
        made.create("nodes", {**BEFORE, "metadata": {**BEFORE["metadata"], "name": "other"}})
        yield made


def run(cluster, tmp_path, *words):
    path = cluster.write_kubeconfig(tmp_path / "kubeconfig")
    result = CliRunner().invoke(main, ["withdraw", *words, "--kubeconfig", str(path)])
    assert result.exit_code == 0, result.output
    return result.output


def show(cluster, name):
    found = cluster.get("nodes", name, "")
    meta = {key: found["metadata"][key] for key in ("labels", "annotations")}
    return {"metadata": meta, "status": {k: found["status"][k] for k in BEFORE["status"]}}


def test_every_node_is_as_it_was_before_the_agent_came(cluster, tmp_path):
    printed = run(cluster, tmp_path)

    assert show(cluster, "a") == show(cluster, "b") == BEFORE
    assert "node a: 2 labels, 4 annotations and 3 amounts taken off" in printed
    assert "node other" not in printed


def test_only_the_named_node_is_cleaned(cluster, tmp_path):
    run(cluster, tmp_path, "--node", "b")

    assert show(cluster, "b") == BEFORE
    assert show(cluster, "a") != BEFORE


def test_dry_run_changes_nothing_and_a_second_run_finds_nothing(cluster, tmp_path):
    assert "node a:" in run(cluster, tmp_path, "--dry-run")
    assert show(cluster, "a") != BEFORE
    run(cluster, tmp_path)

    assert run(cluster, tmp_path) == "nothing to take off\n"


def test_specs_of_ours_are_deleted_and_others_stay(cluster, tmp_path):
    folder = tmp_path / "cdi"
    folder.mkdir()
    for name in ("slicewise-0a.json", "slicewise-claim-7.json", "nvidia.yaml", "slicewise.txt"):
        (folder / name).write_text("{}")

    run(cluster, tmp_path, "--specs", str(folder))

    assert sorted(path.name for path in folder.iterdir()) == ["nvidia.yaml", "slicewise.txt"]
    assert remove_specs(folder) == []


def test_amounts_that_a_kubelet_repeats_are_taken_off_by_a_later_run(cluster, tmp_path):
    run(cluster, tmp_path, "--phase=published")
    traced = show(cluster, "a")
    zeros = {"status": {"capacity": {"slicewise.io/carrier": "0"}}}
    cluster.patch("nodes", "a", zeros, namespace="", status=True)
    assert show(cluster, "a")["status"]["capacity"]["slicewise.io/carrier"] == "0"

    run(cluster, tmp_path, "--phase=amounts")

    assert traced["metadata"]["annotations"] == {"note": "kept", PUBLISHED: "{}"}
    assert show(cluster, "a") == show(cluster, "b") == BEFORE


def test_node_on_which_an_agent_has_published_again_is_left_to_it(cluster, tmp_path):
    run(cluster, tmp_path, "--phase=published")
    again = {"metadata": {"annotations": PUBLISHED_NODE["metadata"]["annotations"]}}
    cluster.patch("nodes", "b", again, namespace="")

    run(cluster, tmp_path, "--phase=amounts")

    assert show(cluster, "a") == BEFORE
    assert show(cluster, "b")["metadata"]["annotations"][PUBLISHED] == json.dumps(OURS)
