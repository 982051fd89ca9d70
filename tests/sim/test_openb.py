import gzip

import pytest

from slicewise.model import TraceError
from slicewise.sim.openb import OpenbFolder, read_nodes, read_pods, read_trace

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"


@pytest.fixture
def write(tmp_path):
    def put(name, text):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return put


def test_node_row_becomes_a_node_with_equal_gpus(write):
    (node,) = read_nodes(write("nodes.csv", f"{NODES}a,64000,262144,2,P100\n"))

    assert (node.name, node.host.cpu, node.host.memory) == ("a", 64000, 262144)
    assert [(gpu.index, gpu.model) for gpu in node.gpus] == [(0, "P100"), (1, "P100")]


@pytest.mark.parametrize("name", ["pods.csv", "pods.csv.gz"])
def test_milli_amounts_become_percent_and_models_a_constraint(write, name):
    text = f"{PODS}a,6000,1024,1,460,V100M16|V100M32\nb,500,64,0,0,\nc,1,1,8,1000,\n"

    (part, none, whole), notes = read_pods(write(name, text))

    assert [share.cores for share in part.request.containers[0].shares] == [46]
    assert part.request.constraints.models == ("V100M16", "V100M32")
    assert none.request.containers == ()
    assert none.request.host.cpu == 500
    assert [share.whole for share in whole.request.containers[0].shares] == [True] * 8
    assert notes == []


def test_milli_amount_between_two_percents_rounds_up_with_a_note(write):
    (pod,), notes = read_pods(write("pods.csv", f"{PODS}a,0,0,1,455,\n"))

    assert pod.request.containers[0].shares[0].cores == 46
    assert notes == ["pods.csv line 2: gpu_milli=455 counts as 46 percent"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        pytest.param("a,-1,0,1,460,", r"line 2: cpu_milli='-1': expected", id="negative"),
        pytest.param("a,0,0,one,460,", r"line 2: num_gpu='one': expected", id="not-a-number"),
        pytest.param("a,0,0,1,1500,", r"line 2: gpu_milli='1500': .*1000", id="150-percent"),
        pytest.param("a,0,0,1,0,", r"line 2: gpu_milli='0': expected", id="no-share"),
        pytest.param("a,0,0,900,1000,", r"line 2: num_gpu='900': .*at most 64", id="900-gpus"),
        pytest.param(",0,0,1,460,", r"line 2: name='': expected a pod name", id="no-name"),
        pytest.param("a,0,0,1", r"line 2: expected 6 cells", id="short-row"),
        pytest.param("a,9" + "9" * 400 + ",0,1,460,", r"line 2: cpu_milli='999", id="absurd"),
    ],
)
def test_malformed_pod_row_is_named_by_file_line_column_and_value(write, row, message):
    with pytest.raises(TraceError, match=rf"pods\.csv {message}"):
        read_pods(write("pods.csv", f"{PODS}{row}\n"))


def test_missing_column_is_named(write):
    with pytest.raises(TraceError, match=r"nodes\.csv line 1: column 'model' is missing"):
        read_nodes(write("nodes.csv", "sn,cpu_milli,memory_mib,gpu\n"))


def test_node_listed_twice_is_named(write):
    nodes = write("nodes.csv", f"{NODES}a,1,1,1,T4\na,1,1,1,T4\n")

    with pytest.raises(TraceError, match="node 'a' is listed twice"):
        read_trace(nodes, write("pods.csv", PODS))


def test_truncated_gzip_is_an_error_that_names_the_file(write):
    path = write("pods.csv.gz", PODS + "a,1,1,1,1000,\n" * 100)
    path.write_bytes(path.read_bytes()[:-20])

    with pytest.raises(TraceError, match=r"cannot read .*pods\.csv\.gz"):
        read_pods(path)


def test_unknown_trace_is_answered_with_the_known_ones(write, tmp_path):
    write("openb_pod_list_tiny.csv", PODS)

    with pytest.raises(TraceError, match="trace 'huge': expected one of tiny"):
        OpenbFolder(tmp_path).read_trace("huge")


def test_recorded_position_outside_the_pod_list_is_named(write, tmp_path):
    write("openb_node_list_gpu_node.csv", f"{NODES}a,1,1,1,T4\n")
    write("openb_pod_list_tiny.csv", f"{PODS}p,1,1,1,1000,\n")
    write("arrivals.csv.gz", "trace,seed,kind,values\ntiny,42,pods,0 1\n")
    folder = OpenbFolder(tmp_path)

    with pytest.raises(TraceError, match=r"arrivals\.csv\.gz line 2: values='0 1': .*below 1"):
        folder.read_arrivals(folder.read_trace("tiny"), 42)
