"""`kubectl inspect gpushare`, held to the original's samples and rules letter by letter."""

import json

import pytest
import yaml
from click.testing import CliRunner

from cli.gpushare_cluster import add_node, add_pod, contract_cluster
from slicewise.cli.inspect_gpushare import main
from slicewise.dialects import GPUS, write_gpus
from slicewise.model import Gpu, MiB, Node
from slicewise_playground.cluster import Playground

SUMMARY = """\
NAME···IPADDRESS··GPU0(Allocated/Total)··GPU1(Allocated/Total)··PENDING(Allocated)··GPU·Memory(GiB)
gpu-a··10.0.0.11··6/15···················3/15···················2···················11/30
gpu-b··10.0.0.12··4/15···················0/0········································4/15
------------------------------------------------------
Allocated/Total·GPU·Memory·In·Cluster:
15/45·(33%)··
"""
DETAILS = """\

NAME:·······gpu-a
IPADDRESS:··10.0.0.11

NAME·········NAMESPACE··GPU0(Allocated)··GPU1(Allocated)··Pending(Allocated)··
infer-0······default····6················0················0···················
infer-1······default····0················3················0···················
raw-pod······team-x·····0················0················2···················
Allocated·:··11·(36%)···
Total·:······30·········
------------------------------------------------------------------------------


Allocated/Total·GPU·Memory·In·Cluster:··11/30·(36%)··
"""


def inspect(cluster, tmp_path, *arguments):
    with cluster:
        path = cluster.write_kubeconfig(tmp_path / "kubeconfig")
        return CliRunner().invoke(main, [*arguments, "--kubeconfig", str(path)])


def show(cluster, tmp_path, *arguments):
    result = inspect(cluster, tmp_path, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def amounts(cluster, tmp_path):
    """Per node the used units of every GPU, what is pending, and what is used in all."""
    document = json.loads(show(cluster, tmp_path, "-o", "json"))
    return {
        node["name"]: (
            [gpu["usedGPU"] for gpu in node["devs"]],
            node["pendingGPU"],
            node["usedGPU"],
        )
        for node in document["nodes"]
    }


def test_summary_is_the_contracts_sample_to_the_letter(tmp_path):
    assert show(contract_cluster(), tmp_path) == SUMMARY.replace("·", " ")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("-d", "gpu-a"), id="flag-first"),
        pytest.param(("gpu-a", "-d"), id="node-first"),
        pytest.param(("-logtostderr", "gpu-a", "--v=5", "-d=true"), id="as-go-writes-flags"),
    ],
)
def test_details_are_the_contracts_sample_wherever_the_node_stands(tmp_path, arguments):
    assert show(contract_cluster(), tmp_path, *arguments) == DETAILS.replace("·", " ")


def test_eight_gpus_are_shown_as_the_users_document_shows_them(tmp_path):
    cluster = Playground()
    add_node(cluster, "dev-server-153", "192.168.0.153", memory=184, count=8)

    lines = show(cluster, tmp_path).split("\n")

    heads = "".join(f"GPU{at}(Allocated/Total)  " for at in range(8))
    assert lines == [
        f"NAME            IPADDRESS      {heads}GPU Memory(GiB)",
        "dev-server-153  192.168.0.153  " + "0/23                   " * 8 + "0/184",
        "-" * 95,
        "Allocated/Total GPU Memory In Cluster:",
        "0/184 (0%)  ",
        "",
    ]


def test_details_of_several_nodes_share_the_first_nodes_dashes(tmp_path):
    text = show(contract_cluster(), tmp_path, "-d")

    assert text.count("\n" + "-" * 78 + "\n") == 2
    assert text.index("gpu-a") < text.index("gpu-b")
    assert "NAME         NAMESPACE  GPU0(Allocated)  \nother        default    4 " in text
    assert text.endswith("\n\n\nAllocated/Total GPU Memory In Cluster:  15/45 (33%)  \n")


def test_empty_cluster_prints_headings_and_an_empty_line(tmp_path):
    assert show(Playground(), tmp_path) == (
        "NAME  IPADDRESS  GPU Memory()\n\nAllocated/Total GPU Memory In Cluster:\n0/0 (0%)  \n"
    )


@pytest.mark.parametrize(
    ("memory", "count", "unit"),
    [
        pytest.param(184, 8, "GiB", id="a30s"),
        pytest.param(8 * 24258, 8, "MiB", id="a30s-in-mib"),
        pytest.param(141, 1, "GiB", id="h200-above-a-hundred-gib"),
        pytest.param(23, 0, "", id="no-count-yet"),
    ],
)
def test_unit_is_told_by_the_size_of_a_gpu(tmp_path, memory, count, unit):
    cluster = Playground()
    add_node(cluster, "n", memory=memory, count=count)

    heading = show(cluster, tmp_path).partition("\n")[0]

    assert heading.endswith(f"GPU Memory({unit})")
    assert heading.count("(Allocated/Total)") == count


def test_nodes_of_two_units_are_added_up_in_the_smaller(tmp_path):
    cluster = Playground()
    add_node(cluster, "gib", memory=23, count=1)
    add_node(cluster, "mib", memory=24258, count=1)
    add_pod(cluster, "a", "gib", 3, idx="0")
    add_pod(cluster, "b", "mib", 500, idx="0")

    lines = show(cluster, tmp_path).splitlines()

    assert lines[0].endswith("GPU Memory(MiB)")
    assert [line.split()[-1] for line in lines[1:3]] == ["3072/23552", "500/24258"]
    assert lines[-1] == "3572/47810 (7%)  "


@pytest.mark.parametrize(
    ("annotations", "gpus", "pending"),
    [
        pytest.param({"idx": "1"}, [0, 12], 0, id="index"),
        pytest.param({}, [0, 0], 12, id="no-record"),
        pytest.param({"idx": "2"}, [0, 0], 12, id="index-of-no-gpu"),
        pytest.param({"idx": "-1"}, [0, 0], 12, id="negative-index"),
        pytest.param({"idx": " 0"}, [0, 0], 12, id="unreadable-index"),
        pytest.param({"division": '{"0":{"0":6,"1":6}}'}, [6, 6], 0, id="division"),
        pytest.param({"division": '{"0":{"0":4},"1":{"0":8}}'}, [12, 0], 0, id="two-containers"),
        pytest.param({"division": '{"0":{"0":6,"7":6}}'}, [6, 0], 6, id="division-of-no-gpu"),
        pytest.param({"division": "{", "idx": "0"}, [12, 0], 0, id="broken-division"),
        pytest.param({"division": '{"x":{"0":3}}', "idx": "1"}, [0, 12], 0, id="outer-key"),
        pytest.param({"division": '{"0":{"x":3}}', "idx": "1"}, [0, 12], 0, id="inner-key"),
        pytest.param({"division": '{"0":{"0":1.5}}', "idx": "1"}, [0, 12], 0, id="amount"),
        pytest.param({"division": "{}", "idx": "1"}, [0, 12], 0, id="empty-division"),
        pytest.param({"idx": "0,1"}, [6, 6], 0, id="indexes-without-division"),
    ],
)
def test_gpu_of_a_pod_is_read_by_the_contracts_rules(tmp_path, annotations, gpus, pending):
    cluster = Playground()
    add_node(cluster, "n", memory=30, count=2)
    add_pod(cluster, "p", "n", 12, **annotations)

    assert amounts(cluster, tmp_path) == {"n": (gpus, pending, 12)}


def test_pod_on_no_gpu_of_the_node_is_in_both_views(tmp_path):
    cluster = Playground()
    add_node(cluster, "n", memory=15, count=1)
    add_pod(cluster, "p", "n", 4, idx="3")

    with cluster:
        path = str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        summary, details = (
            CliRunner().invoke(main, ["--kubeconfig", path, *more]).stdout for more in ([], ["-d"])
        )

    assert "  4                   4/15\n" in summary
    assert "p            default    0                4" in details


def test_failed_gpu_does_not_make_the_others_look_smaller(tmp_path):
    cluster = Playground()
    add_node(cluster, "n", memory=15, capacity=30, count=2)

    row = show(cluster, tmp_path).splitlines()[1]

    assert row.split()[-3:] == ["0/15", "0/15", "0/15"]


def test_ended_pods_do_not_count_and_leaving_ones_do(tmp_path):
    cluster = Playground()
    add_node(cluster, "n", memory=15, count=1)
    for name in ("ended", "failed", "leaving"):
        add_pod(cluster, name, "n", 2, idx="0")
    cluster.patch("pods", "ended", {"status": {"phase": "Succeeded"}}, status=True)
    cluster.patch("pods", "failed", {"status": {"phase": "Failed"}}, status=True)
    cluster.delete("pods", "leaving", grace=30)

    assert amounts(cluster, tmp_path) == {"n": ([2], 0, 2)}


def test_amounts_in_any_suffix_are_read(tmp_path):
    cluster = Playground()
    add_node(cluster, "n", memory="24k", count=1)
    add_pod(cluster, "p", "n", "1k", idx="0")

    assert amounts(cluster, tmp_path) == {"n": ([1000], 0, 1000)}


def own_node(*sizes):
    gpus = [
        Gpu(at, f"GPU-{at}", "NVIDIA A10", MiB(size), minor=2 * at) for at, size in enumerate(sizes)
    ]
    return Node("own", tuple(gpus))


def test_gpus_that_slicewise_published_have_their_own_size_and_number(tmp_path):
    cluster = Playground()
    annotations = {GPUS: write_gpus(own_node(81920, 23028))}
    add_node(cluster, "own", memory=102, count=2, annotations=annotations)
    add_pod(cluster, "p", "own", 3, idx="2")

    row = show(cluster, tmp_path).splitlines()[1]

    assert row.split()[2:] == ["0/80", "0/0", "3/22", "3/102"]


def test_pods_of_other_systems_are_counted_on_the_same_gpus(tmp_path):
    cluster, node = Playground(), own_node(40960, 40960)
    add_node(cluster, "own", memory=80, count=2, annotations={GPUS: write_gpus(node)})
    add_pod(cluster, "ours", "own", 3, idx="0")
    record = {"containers": {"main": [[1, "GPU-1", 30, 5000]]}, "node": "own"}
    limits = {"slicewise.io/cores": "30", "slicewise.io/memory": "5000"}
    add_pod(cluster, "own", "own", limits=limits, **{"slicewise.io/allocation": json.dumps(record)})
    annotations = {"nvidia.com/predicate-gpu-idx-0": "1", "nvidia.com/predicate-node": "own"}
    vcuda = {"nvidia.com/vcuda-core": "50", "nvidia.com/vcuda-memory": "2048"}
    add_pod(cluster, "vcuda", "own", limits=vcuda, **annotations)
    add_pod(cluster, "kubelets", "own", limits={"nvidia.com/gpu": "1"})

    # GPU 1 is number 2 to gpushare; 5000 MiB are 5 GiB, and a GPU nobody names is pending.
    assert amounts(cluster, tmp_path) == {"own": ([3, 7], 40, 50)}


def test_wide_adds_columns_and_changes_no_other(tmp_path):
    plain = show(contract_cluster(), tmp_path).splitlines()
    wide = show(contract_cluster(), tmp_path, "-o", "wide").splitlines()

    assert [line.startswith(old) for line, old in zip(wide, plain, strict=True)] == [True] * 6
    assert wide[0].split()[-5:] == ["PODS", "MODEL", "NOT", "USABLE", "ISOLATION"]
    detailed = show(contract_cluster(), tmp_path, "-d", "-o", "wide", "gpu-b")
    assert "other        default    4                gpushare  Pending" in detailed


def test_yaml_and_json_say_the_same(tmp_path):
    as_json = json.loads(show(contract_cluster(), tmp_path, "-o", "json"))
    as_yaml = yaml.safe_load(show(contract_cluster(), tmp_path, "-o", "yaml"))

    assert as_json == as_yaml
    assert (as_json["unit"], as_json["usedGPU"], as_json["percent"]) == ("GiB", 15, 33)
    assert as_json["nodes"][0]["pending"] == [
        {"name": "raw-pod", "namespace": "team-x", "usedGPU": 2, "system": "gpushare"}
    ]


def test_unknown_node_is_a_plain_error(tmp_path):
    result = inspect(contract_cluster(), tmp_path, "nobody")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == 'Error: node "nobody" not found\n'


def test_node_that_shares_nothing_is_said_to(tmp_path):
    cluster = Playground()
    cluster.create("nodes", {"metadata": {"name": "plain"}})

    result = inspect(cluster, tmp_path, "plain")

    assert result.exit_code == 0
    assert result.stderr == "node plain has no aliyun.com/gpu-mem to share\n"
    assert result.stdout.endswith("0/0 (0%)  \n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(None, "cannot read", id="missing"),
        pytest.param("[1]", "expected a kubeconfig", id="not-one"),
        pytest.param("current-context: x", "no context 'x'", id="no-context"),
    ],
)
def test_bad_kubeconfig_is_a_plain_error(tmp_path, text, message):
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)

    result = CliRunner().invoke(main, ["--kubeconfig", str(path)])

    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_unreachable_server_is_a_plain_error(tmp_path):
    path = tmp_path / "config"
    clusters = [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]
    contexts = [{"name": "c", "context": {"cluster": "c"}}]
    path.write_text(
        yaml.safe_dump({"current-context": "c", "clusters": clusters, "contexts": contexts})
    )

    result = CliRunner().invoke(main, ["--kubeconfig", str(path)])

    assert result.exit_code == 1
    assert "cannot reach http://127.0.0.1:1" in result.stderr


def test_help_needs_no_kubeconfig(monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")

    assert CliRunner().invoke(main, ["--help"]).exit_code == 0
