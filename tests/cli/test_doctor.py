import json

import pytest
import yaml
from click.testing import CliRunner

from cli.gpushare_cluster import add_node, add_pod
from fakes.cluster import FakeState, FakeWriter
from slicewise.cli.main import main
from slicewise.dialects.scheduler_config import build_config
from slicewise.extender.handlers import Extender
from slicewise.extender.routes import build_handler
from slicewise_playground.cluster import Playground
from slicewise_playground.threaded_server import ThreadedServer


def config(**changes):
    made = build_config("slicewise", "http://x")
    made["extenders"][0] |= changes
    return made


@pytest.fixture
def cluster():
    with Playground() as made:
        add_node(made, "n0", memory=30, count=2, labels={"gpushare": "true"})
        yield made


def run(cluster, tmp_path, *words):
    path = cluster.write_kubeconfig(tmp_path / "kubeconfig")
    return CliRunner().invoke(main, ["doctor", *words, "--kubeconfig", str(path)])


def test_cluster_in_order_ends_with_0(cluster, tmp_path):
    file = tmp_path / "scheduler.yaml"
    file.write_text(yaml.safe_dump(build_config("gpushare", "http://x")))
    extender = Extender(FakeState(), FakeWriter())

    with ThreadedServer(build_handler(extender)) as server:
        words = ("--scheduler-config", str(file), "--extender", server.url, "--strict")
        result = run(cluster, tmp_path, *words)

    assert result.exit_code == 0, result.output
    assert "asks http://x/gpushare-scheduler" in result.output
    assert "is ready" in result.output


def test_problems_of_the_cluster_end_with_1(cluster, tmp_path):
    cluster.create(
        "configmaps",
        {
            "metadata": {"name": "scheduler", "namespace": "kube-system"},
            "data": {"config.yaml": yaml.safe_dump({**config(), "extenders": []})},
        },
    )
    cluster.answers.allow = lambda spec: spec["resourceAttributes"]["verb"] != "patch"
    for name in ("a", "b"):
        add_pod(cluster, name, "n0", 12, idx="0", pod="12")

    result = run(cluster, tmp_path, "-o", "json")

    found = {(each["level"], each["what"]) for each in json.loads(result.stdout)["findings"]}
    where = "ConfigMap kube-system/scheduler config.yaml"
    assert result.exit_code == 1
    assert ("problem", f"{where}: no extender manages a GPU resource") in found
    assert ("warning", "you may not patch nodes, which cordon needs") in found
    assert any("OverCommitted" in what for _, what in found)


def test_scheduler_without_configuration_is_a_problem(cluster, tmp_path):
    container = {"name": "s", "image": "i", "command": ["kube-scheduler", "--leader-elect=true"]}
    meta = {"name": "kube-scheduler-a", "namespace": "kube-system"}
    cluster.create("pods", {"metadata": meta, "spec": {"containers": [container]}})

    result = run(cluster, tmp_path)

    assert result.exit_code == 1
    assert "pod kube-scheduler-a is started without --config: it asks no extender" in result.output


def test_pod_that_waits_for_a_misspelt_resource_is_a_problem(cluster, tmp_path):
    limits = {"limits": {"vidia.com/vcuda-memory": "3"}}
    container = {"name": "c", "image": "i", "resources": limits}
    cluster.create("pods", {"metadata": {"name": "typo"}, "spec": {"containers": [container]}})

    result = run(cluster, tmp_path, "-o", "json")

    found = [each for each in json.loads(result.stdout)["findings"] if "vcuda" in each["what"]]
    assert result.exit_code == 1
    assert [(each["subject"], each["what"], each["fix"]) for each in found] == [
        (
            "pod/default/typo",
            "waits for vidia.com/vcuda-memory, which nobody offers",
            "write nvidia.com/vcuda-memory into its manifest",
        )
    ]


def test_policy_file_on_a_cluster_that_no_longer_reads_it_is_named(cluster, tmp_path):
    file = tmp_path / "scheduler-policy-config.json"
    extender = {"urlPrefix": "http://<ip>:<port>/scheduler", "filterVerb": "predicates"}
    file.write_text(json.dumps({"kind": "Policy", "apiVersion": "v1", "extenders": [extender]}))

    result = run(cluster, tmp_path, "--scheduler-config", str(file))

    assert result.exit_code == 1
    assert "a Policy, which schedulers read up to 1.22; this cluster is 1." in result.output
    assert "slicewise scheduler-config --from" in result.output


def test_unreachable_extender_is_a_problem(cluster, tmp_path):
    result = run(cluster, tmp_path, "--extender", "http://127.0.0.1:1")

    assert result.exit_code == 1
    assert "http://127.0.0.1:1 does not answer" in result.output


def test_unreachable_cluster_ends_with_2(tmp_path):
    result = CliRunner().invoke(main, ["doctor", "--kubeconfig", str(tmp_path / "none")])

    assert result.exit_code == 2
