import json

import pytest
from click.testing import CliRunner

import builders
from extender.living import Cluster
from fakes.cluster import FakeState, FakeWriter
from slicewise.cli.main import main
from slicewise.cli.render.terminal import finish
from slicewise.explain.answer_text import describe
from slicewise.explain.format import join_numbers
from slicewise.extender.handlers import Extender
from slicewise.extender.routes import build_handler
from slicewise_playground.threaded_server import ThreadedServer

CAPACITY = {
    "cpu": "64",
    "memory": "512Gi",
    "pods": "110",
    "slicewise.io/gpu": "100",
    "slicewise.io/cores": "100",
    "slicewise.io/memory": "40960",
}
HALF = {"slicewise.io/cores": "50", "slicewise.io/memory": "1024"}


def ask(*arguments, limits):
    pod = builders.pod(limits=limits)
    extender = Extender(FakeState(builders.node("a", 1)), FakeWriter(pod))
    with ThreadedServer(build_handler(extender)) as server:
        return CliRunner().invoke(main, ["why", *arguments, "--url", server.url])


def test_refused_pod_is_told_what_would_fit():
    result = ask("p0", limits={"slicewise.io/cores": 50, "slicewise.io/memory": 50000})

    assert result.exit_code == 1
    assert "0 of 1 node can take it; 1: No GPU is large enough" in result.output
    assert (
        "smallest change: ask for 40960 MiB of each GPU instead of 50000, "
        "as slicewise.io/memory: 40960 (node a)"
    ) in result.output
    assert "gpu 0 (NVIDIA A100-SXM4-40GB): lacks 9040 MiB" in result.output


def test_misspelt_resource_is_told_with_the_one_that_was_meant():
    result = ask("p0", limits={"aliyun.com/gpu-memory": 3})

    assert result.exit_code == 2
    assert "aliyun.com/gpu-memory is no resource that Slicewise knows" in result.output
    assert "probably aliyun.com/gpu-mem was meant" in result.output


def test_fitting_pod_is_told_its_best_place():
    result = ask("default/p0", limits={"slicewise.io/gpu": 1})

    assert result.exit_code == 0
    assert "best now: node a, c0: all of gpu 0 (NVIDIA A100-SXM4-40GB)" in result.output


def test_unknown_pod_is_an_error():
    result = ask("nobody", limits={})

    assert result.exit_code == 2
    assert "pod 'default/nobody': not found" in result.output


def test_unreachable_extender_is_an_error():
    result = CliRunner().invoke(main, ["why", "p", "--url", "http://127.0.0.1:1"])

    assert result.exit_code == 2
    assert "pass --url" in result.output


@pytest.fixture(scope="module")
def living():
    with Cluster(nodes=2, gpus=1, capacity=CAPACITY) as cluster:
        cluster.wait_ready()
        cluster.schedule(cluster.add("placed", HALF))
        cluster.add("huge", {"slicewise.io/gpu": "3"})
        cluster.add("plain", {"cpu": "1"})
        yield cluster


def run(living, tmp_path, *words):
    path = living.playground.write_kubeconfig(tmp_path / "kubeconfig")
    return CliRunner().invoke(main, ["why", *words, "--kubeconfig", str(path)])


def test_answer_from_the_api_is_the_extenders_own(living, tmp_path):
    by_api = run(living, tmp_path, "huge", "-o", "json")
    by_url = CliRunner().invoke(main, ["why", "huge", "-o", "json", "--url", living.url])

    assert (by_api.exit_code, by_url.exit_code) == (1, 1)
    assert json.loads(by_api.stdout) == json.loads(by_url.stdout)


def test_placed_pod_is_told_what_it_holds(living, tmp_path):
    result = run(living, tmp_path, "placed")

    assert result.exit_code == 0
    assert "it is on node n0 and holds 50 percent and 1024 MiB of gpu 0" in result.output


def test_pod_without_gpu_is_no_matter_of_ours(living, tmp_path):
    result = run(living, tmp_path, "plain")

    assert result.exit_code == 0
    assert "asks for no GPU: Slicewise lets it pass" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(("nobody",), "pod 'default/nobody': not found", id="pod"),
        pytest.param(("huge", "--node", "n7"), 'node "n7" not found', id="node"),
        pytest.param(("huge", "--policy", "best"), "best", id="policy"),
        pytest.param(("huge", "--url", "http://x", "--service", "a/b:1"), "pass one", id="two"),
    ],
)
def test_what_cannot_be_asked_is_exit_code_2(living, tmp_path, words, message):
    result = run(living, tmp_path, *words)

    assert result.exit_code == 2
    assert message in result.output


def test_nodes_the_scheduler_never_asks_about_are_told_apart(living, tmp_path):
    container = {"name": "c", "image": "i", "resources": {"limits": HALF}}
    spec = {"nodeSelector": {"zone": "b"}, "containers": [container]}
    living.playground.create("pods", {"metadata": {"name": "picky"}, "spec": spec})

    result = run(living, tmp_path, "picky")

    assert result.exit_code == 1
    assert "the scheduler itself leaves out 2: 2: no label zone=b" in result.output


def test_many_nodes_are_cut_to_the_nearest():
    refused = {"fits": False, "phrase": "Full", "gpus": []}
    nodes = [
        {"node": f"n{at}", **refused, "changes": [{"distance": 1 - at / 100, "text": "x"}]}
        for at in range(30)
    ]
    answer = {"pod": "a/b", "asks": "c: a whole GPU", "summary": "none", "nodes": nodes}

    lines = describe(answer)

    assert lines[2].startswith("  n29: ")
    assert finish(lines[-1]) == "\x1b[90m  and 20 more nodes: --all, --node NAME or -o json\x1b[0m"
    assert len([line for line in describe(answer, most=None) if line.startswith("  n")]) == 30


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([1, 0], "0, 1"), ([0, 1, 2, 3], "0-3"), ([0, 2, 3, 4, 7], "0, 2-4, 7")],
)
def test_numbers_are_written_as_people_do(numbers, text):
    assert join_numbers(numbers) == text


@pytest.fixture
def pooled(tmp_path):
    """A cluster whose nodes name their pool by a label of its own, with a quota for that pool."""
    with Cluster(nodes=1, gpus=1, capacity=CAPACITY) as cluster:
        cluster.wait_ready()
        cluster.playground.patch("nodes", "n0", {"metadata": {"labels": {"x.org/pool": "gold"}}})
        quota = {"default": {"quota": {"A100": 4}, "pool": ["silver"]}}
        body = {"metadata": {"name": "gpuquota", "namespace": "kube-system"},
                "data": {"gpu_quota": json.dumps(quota)}}  # fmt: skip
        cluster.playground.create("configmaps", body)
        cluster.add("asks", HALF)
        yield cluster


def test_labels_of_the_quota_can_be_told_where_no_extender_is_asked(pooled, tmp_path, monkeypatch):
    assert (
        run(pooled, tmp_path, "asks").exit_code
        == run(pooled, tmp_path, "asks", "--pool-label=x.org/pool").exit_code
        == 1
    )
    pooled.playground.patch("nodes", "n0", {"metadata": {"labels": {"x.org/pool": "silver"}}})

    assert run(pooled, tmp_path, "asks").exit_code == 1
    assert run(pooled, tmp_path, "asks", "--pool-label=x.org/pool").exit_code == 0
    monkeypatch.setenv("SLICEWISE_POOL_LABEL", "x.org/pool")
    assert run(pooled, tmp_path, "asks").exit_code == 0
