"""The demo as `make demo ONCE=1` runs it, and what its check finds."""

import re
import subprocess
import sys

import msgspec
import pytest
from click.testing import CliRunner

from slicewise_playground.cli.demo import demo
from slicewise_playground.demo.allocation_check import AllocationCheck
from slicewise_playground.demo.demo_cluster import build_nodes, find_examples, read_manifests

SYSTEMS = ("gpu-admission", "gpu-manager", "gpushare", "elastic-gpu", "nvidia-gpu-scheduler")


def run(*arguments):
    """The command's exit code and what it printed."""
    command = [
        sys.executable,
        "-c",
        "from slicewise.cli.main import main; main()",
        "demo",
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_demo_places_every_system_and_explains_the_pod_that_waits():
    code, shown = run("--once")

    assert code == 0, shown
    assert shown.startswith("Page http://127.0.0.1:")
    rows = [line for line in shown.splitlines() if line.startswith("│")]
    for system in (*SYSTEMS, "slicewise"):
        assert any(system in row for row in rows), f"{system} is missing:\n{shown}"
    expected = sum(each.pods for each in read_manifests(find_examples()))
    assert f"{expected} pods placed as expected, 1 waits" in shown
    assert "2 programs held to their shares, 1 stopped at its memory limit" in shown
    # Which pods share a GPU depends on who came first.
    assert re.search(r"% (\d+) MiB .* CUDA_ERROR_OUT_OF_MEMORY at \1 MiB", shown)
    assert "smallest change: " in shown.partition("Pending: default/does-not-fit")[2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, resources: "
            "{limits: {aliyun.com/gpu-memory: 3}}}]}",
            "Pod p: container c: aliyun.com/gpu-memory is no resource",
        ),
        ("kind: Pod\nmetadata: {name: p}\nspec: 3", "Pod p: spec.containers: expected containers"),
        ("kind: Pod\nspec: {}", "Pod: metadata.name: expected a name"),
        ("kind: [", "not YAML"),
        ("kind: Widget", "kind='Widget': expected"),
    ],
)
def test_bad_example_is_answered_with_one_line(tmp_path, text, words):
    (tmp_path / "gpushare").mkdir()
    path = tmp_path / "gpushare" / "bad.yaml"
    path.write_text(text)

    result = CliRunner().invoke(demo, ["--once", "--examples", str(tmp_path)])

    assert result.exit_code == 1
    assert result.output.count("\n") == 1
    assert str(path) in result.output
    assert words in result.output


def test_demo_fails_when_an_example_cannot_be_placed(tmp_path):
    (tmp_path / "gpushare").mkdir()
    manifest = {
        "kind": "Pod",
        "metadata": {"name": "huge"},
        "spec": {
            "containers": [
                {"name": "c", "image": "i", "resources": {"limits": {"aliyun.com/gpu-mem": 500}}}
            ]
        },
    }
    (tmp_path / "gpushare" / "huge.yaml").write_bytes(msgspec.yaml.encode(manifest))

    code, shown = run("--once", "--examples", str(tmp_path), "--patience", "2")

    assert code == 1
    assert "not every pod was placed in time" in shown
    assert "Pending: default/huge" in shown


def node_objects():
    """The demo's nodes as the API stores them."""
    return [
        {
            "metadata": {
                "name": node.name,
                "labels": dict(node.labels),
                "annotations": dict(node.annotations),
            },
            "status": {"capacity": dict(node.capacity), "allocatable": dict(node.capacity)},
        }
        for node in build_nodes()
    ]


def gpushare_pod(name, units, **annotations):
    """A pod of gpushare on the A30 node."""
    limits = {"aliyun.com/gpu-mem": str(units)}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "annotations": {f"ALIYUN_COM_GPU_MEM_{key}": text for key, text in annotations.items()},
        },
        "spec": {
            "nodeName": "a30-0",
            "containers": [{"name": "c", "resources": {"limits": limits}}],
        },
        "status": {"phase": "Running"},
    }


@pytest.mark.parametrize(
    ("annotations", "broken"),
    [
        pytest.param({"IDX": "0", "POD": "3"}, "", id="marked"),
        pytest.param({}, "carries no record", id="unmarked"),
        pytest.param({"IDX": "9", "POD": "3"}, "IDX='9'", id="no-such-gpu"),
    ],
)
def test_check_reads_a_pods_own_record(annotations, broken):
    check = AllocationCheck(node_objects(), [gpushare_pod("p", 3, **annotations)])

    given = check.check_pod(check.pods[0])

    assert broken in given.broken
    assert bool(given.broken) == bool(broken)


def test_check_finds_a_gpu_that_was_allocated_twice():
    pods = [gpushare_pod(name, 12, IDX="0", POD="12") for name in ("one", "two")]

    check = AllocationCheck(node_objects(), pods)

    assert [each.trouble for each in check.problems()] == ["OverCommitted"]


def test_gpus_of_our_agents_offer_the_limiter():
    published = {node.name: node.annotations.get("slicewise.io/gpus") for node in build_nodes()}
    offered = {
        name: [each["isolation"] for each in msgspec.json.decode(text)["gpus"]]
        for name, text in published.items()
        if text is not None
    }

    assert set(offered) == {"t4-0", "a100-0", "mixed-0"}
    for gpus in offered.values():
        assert all(each == {"memory": ["hook"], "compute": ["hook"]} for each in gpus)
