import gzip

import pytest
from click.testing import CliRunner

from slicewise.cli.main import main

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"n{at},64000,262144,4,T4\n" for at in range(4)
)
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"p{at},1000,1024,1,{600 if at % 2 else 1000},\n" for at in range(10)
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(NODES)
    for name in ("default", "tiny"):
        path = tmp_path / f"openb_pod_list_{name}.csv.gz"
        path.write_bytes(gzip.compress(PODS.encode()))
    return tmp_path


def compare(folder, *words):
    return CliRunner().invoke(main, ["compare", "--data", str(folder), "--seeds", "1", *words])


def test_tables_hold_every_trace_every_policy_and_the_bounds(folder):
    result = compare(folder, "--policies", "fgd,fgd:learned,binpack", "--jobs", "2")

    assert result.exit_code == 0, result.output
    rows = [line.split("|")[1:-1] for line in result.stdout.splitlines() if line.startswith("|")]
    head, _, default, tiny, *_ = [[cell.strip() for cell in row] for row in rows]
    assert head == ["trace", "fgd", "fgd:learned", "binpack", "fgd published", "lossless", "most"]
    assert [default[0], tiny[0]] == ["default", "tiny"]
    assert default[1:] == tiny[1:]
    assert default[-2:] == ["80.00", "85.00"]
    assert all(float(cell) <= 85.0 for cell in default[1:4])


def test_departures_fill_one_table(folder):
    result = compare(
        folder, "--policies", "binpack", "--departures", "0.5", "--jobs", "1", "--traces", "tiny"
    )

    assert result.exit_code == 0, result.output
    assert "At 0.50 offered load" in result.stdout
    assert result.stdout.count("| tiny |") == 1


def test_folder_without_traces_is_refused(tmp_path):
    result = compare(tmp_path)

    assert result.exit_code != 0
    assert "no openb files" in result.output


def test_moves_are_compared_with_none(folder):
    words = ("--policies", "binpack", "--jobs", "1", "--traces", "tiny", "--seeds", "42")
    result = compare(folder, *words, "--departures", "0.9", "--defrag")

    assert result.exit_code == 0, result.output
    assert "With at most 3 moves for a pod that fits nowhere" in result.stdout
    assert result.stdout.count("| tiny | binpack |") == 1
    assert "pass --departures" in compare(folder, *words, "--defrag").output
