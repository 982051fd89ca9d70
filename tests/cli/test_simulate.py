import json
import sys

import pytest
from click.testing import CliRunner

from slicewise.cli.main import main
from slicewise.cli.simulate import read_seeds
from slicewise.sim.trace_source import read_sample

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,4,T4\nb,64000,262144,4,T4\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"p{at},1000,1024,1,{500 if at % 2 else 1000},\n" for at in range(10)
)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    return ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]


def run(*words):
    return CliRunner().invoke(main, ["simulate", *words])


def test_sample_is_small_mixed_and_read_without_a_note():
    sample = read_sample()

    assert (len(sample.nodes), len(sample.pods), sample.notes) == (40, 401, ())
    assert {pod.size for pod in sample.pods} == {"cpu", "part", "2 parts", "1", "2", "4", "8"}
    assert len({gpu.memory for node in sample.nodes for gpu in node.gpus}) >= 5
    assert any(pod.request.constraints.models for pod in sample.pods)


def test_sample_runs_without_arguments_and_says_what_was_seen():
    result = run()

    assert result.exit_code == 0, result.output
    for policy in ("default", "fgd", "best-fit", "spread", "random"):
        assert policy in result.stdout
    assert "of 208 GPUs idle" in result.stdout.splitlines()[-1]


def test_json_is_one_document_with_a_run_per_policy_and_seed(files):
    result = run(*files, "--policy", "binpack,spread", "--seeds", "1-2", "--output", "json")

    document = json.loads(result.stdout)
    assert (document["gpus"], document["pods"], document["load_percent"]) == (8, 10, 130)
    assert [(each["policy"], each["seed"]) for each in document["runs"]] == [
        ("binpack", 1),
        ("spread", 1),
        ("binpack", 2),
        ("spread", 2),
    ]
    assert document["bounds"]["lossless_percent"] == pytest.approx(100.0, abs=0.01)
    assert document["runs"][0]["at_full"] <= 100.0


def test_json_has_null_where_the_load_was_not_reached(files):
    result = run(*files, "--policy", "binpack", "--load", "50", "--output", "json")

    (only,) = json.loads(result.stdout)["runs"]
    assert only["at_full"] is None
    assert only["at_end"] == pytest.approx(50.0, abs=7.0)
    assert only["refused"] == {}


def test_fairness_is_shown_beside_the_same_queue_without_it(files):
    words = ("--policy", "binpack", "--departures", "0.9", "--fair-after", "0.2")

    document = json.loads(run(*files, *words, "--output", "json").stdout)
    table = run(*files, *words).stdout

    plain, fair = document["runs"]
    assert (plain["policy"], fair["policy"]) == ("binpack", "binpack fair")
    assert plain["kept"] == 0 < fair["kept"]
    assert "binpack fair" in table


def test_departures_show_means_over_time(files):
    words = ("--policy", "binpack", "--departures", "0.5", "--output", "json")

    (only,) = json.loads(run(*files, *words).stdout)["runs"]

    assert 0.0 < only["allocated"] < 100.0
    assert only["accepted_demand"] > 50.0


@pytest.mark.parametrize(
    ("name", "start"), [("out.png", b"\x89PNG\r\n\x1a\n"), ("out.svg", b"<?xml")]
)
def test_picture_is_written_in_the_form_its_name_asks_for(files, tmp_path, name, start):
    path = tmp_path / name

    result = run(*files, "--policy", "binpack,spread", "--plot", str(path))

    assert result.exit_code == 0, result.output
    assert path.read_bytes().startswith(start)


def test_missing_matplotlib_is_answered_with_the_extra_to_install(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    result = run(*files, "--plot", str(tmp_path / "out.png"))

    assert result.exit_code != 0
    assert "pip install 'slicewise[plot]'" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["--policy", "best"], "policy 'best': expected one of", id="policy"),
        pytest.param(["--seeds", "a-b"], "'a-b': expected seeds like", id="seeds"),
        pytest.param(["--nodes", "none.csv"], "pass --nodes and --pods", id="nodes-alone"),
        pytest.param(["--data", "no/such"], "no openb files in no/such", id="data"),
        pytest.param(["--openb", "no/such"], "no openb files in no/such", id="openb"),
        pytest.param(["--plot", "out.gif"], "ends in .png or .svg", id="picture"),
        pytest.param(["--plot", "a.png", "--departures", "1"], "leave --departures", id="both"),
        pytest.param(["--fair-after", "1"], "expected --departures", id="fair-without-ends"),
    ],
)
def test_wrong_flags_are_answered_with_what_was_expected(words, message):
    result = run(*words)

    assert result.exit_code != 0
    assert message in result.output


def test_one_node_with_one_gpu_is_named_as_one(files, tmp_path):
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,1,T4\n")

    assert ": 1 node, 1 GPU" in run(*files, "--policy", "binpack").output


def test_malformed_row_ends_in_a_message_not_a_traceback(files, tmp_path):
    (tmp_path / "pods.csv").write_text(PODS + "x,1,1,1,1500,\n")

    result = run(*files)

    assert result.exit_code == 1
    assert "pods.csv line 12: gpu_milli='1500'" in result.output


def test_composed_policy_keeps_its_commas(files):
    policy = "node=binpack:2,best-fit:1 gpu=best-fit"

    (only,) = json.loads(run(*files, "--policy", policy, "--output", "json").stdout)["runs"]

    assert only["policy"] == policy


def test_seeds_are_read_as_single_lists_and_ranges():
    assert read_seeds("42") == (42,)
    assert read_seeds("1,3-5") == (1, 3, 4, 5)


def test_folder_of_trace_data_is_named_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SLICEWISE_DATA", str(tmp_path / "none"))

    result = CliRunner().invoke(main, ["simulate", "--trace", "default"])

    assert result.exit_code == 2
    assert f"no openb files in {tmp_path / 'none'}" in result.output


@pytest.mark.parametrize("words", [["simulate", "--trace", "default"], ["compare"]])
def test_without_trace_data_the_flag_and_the_variable_are_named(words, monkeypatch):
    monkeypatch.delenv("SLICEWISE_DATA", raising=False)

    result = CliRunner().invoke(main, words)

    assert result.exit_code == 2
    assert "no folder of trace data: pass --data, or set SLICEWISE_DATA" in result.output
