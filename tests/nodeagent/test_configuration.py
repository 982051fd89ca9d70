"""Node configuration is read as users copy it, and the host is asked for the rest."""

import json
import socket
from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from slicewise.nodeagent.configuration import (
    CgroupLayout,
    ConfigurationError,
    DetectedHost,
    NodeConfig,
    detect_cgroups,
    detect_host,
    load_node_config,
    read_node_config,
    read_scaling,
    resolve_setup,
)

_COPIED = """
{
    "nodeConfig": [
        {
            "name": "k8s01", ## the node's own name, "quoted" or not
            "deviceMemoryScaling": 0.9, ## a part of the memory
            "containerRuntimeEndpoint": "/var/run/containerd/containerd.sock", ## the socket
            "cgroupDriver": "systemd" ## systemd, cgroupfs
        },{
            "name": "k8s02", // another
            "containerRuntimeEndpoint": "unix:///run/with#mark//and-slashes.sock",
            "cgroupDriver": "CgroupFS"
        }
    ]
}
"""
_BARE = DetectedHost(None, None, CgroupLayout(2, Path("/sys/fs/cgroup")))


def test_sample_with_comments_is_read_as_users_copy_it():
    assert read_node_config("config.json", _COPIED, "k8s01") == NodeConfig(
        Fraction(9, 10), Path("/var/run/containerd/containerd.sock"), "systemd"
    )


def test_marks_of_comments_inside_texts_are_kept_and_spelling_is_settled():
    assert read_node_config("config.json", _COPIED, "k8s02") == NodeConfig(
        None, Path("/run/with#mark//and-slashes.sock"), "cgroupfs"
    )


@pytest.mark.parametrize("node", ["k8s01", "k8s02"])
def test_config_map_of_the_examples_loads(node):
    page = Path(__file__).parents[2] / "examples" / "gpu-manager" / "configmap.yaml"
    text = yaml.safe_load(page.read_text())["data"]["config.json"]

    config = read_node_config("config.json", text, node)

    assert config == NodeConfig(Fraction(1), Path("/var/run/containerd/containerd.sock"), "systemd")


def test_node_that_is_not_named_has_no_configuration():
    assert read_node_config("config.json", _COPIED, "k8s03") == NodeConfig()


def test_missing_file_is_fine(tmp_path):
    assert load_node_config(tmp_path / "config.json", "n") == NodeConfig()


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        pytest.param("deviceMemoryScaling", 1.5, "at most 1", id="more-than-there-is"),
        pytest.param("deviceMemoryScaling", -1, "at most 1", id="below-zero"),
        pytest.param("deviceMemoryScaling", "0.5", "a number", id="number-as-text"),
        pytest.param("deviceMemoryScaling", False, "a number", id="truth"),
        pytest.param("containerRuntimeEndpoint", "tcp://host", "a path", id="no-path"),
        pytest.param("containerRuntimeEndpoint", 7, "a text", id="no-text"),
        pytest.param("cgroupDriver", "sysctl", "cgroupfs or systemd", id="unknown-driver"),
    ],
)
def test_field_that_cannot_be_read_is_named_and_the_others_hold(field, value, expected):
    entry = {
        "name": "n",
        "deviceMemoryScaling": 0.5,
        "containerRuntimeEndpoint": "/a.sock",
        "cgroupDriver": "systemd",
        field: value,
    }
    good = NodeConfig(Fraction(1, 2), Path("/a.sock"), "systemd")

    config = read_node_config("config.json", json.dumps({"nodeConfig": [entry]}), "n")

    (problem,) = config.problems
    assert problem.startswith(f"config.json: nodeConfig[0].{field}={value!r}: expected ")
    assert expected in problem
    kept = {"scaling": good.scaling, "runtime": good.runtime, "cgroup_driver": good.cgroup_driver}
    lost = {
        "deviceMemoryScaling": "scaling",
        "containerRuntimeEndpoint": "runtime",
        "cgroupDriver": "cgroup_driver",
    }[field]
    assert {name: getattr(config, name) for name in kept} == {**kept, lost: None}


def test_mistakes_of_other_nodes_are_not_ours():
    text = json.dumps({"nodeConfig": [7, {"name": "other", "cgroupDriver": 1}, {"name": "n"}]})

    assert read_node_config("config.json", text, "n") == NodeConfig()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nodeConfig": {}}', "## nothing", "\x00"])
def test_corrupt_file_is_a_problem_that_names_it(text):
    config = read_node_config("config.json", text, "n")

    assert config.problems[0].startswith("config.json: ")
    assert (config.scaling, config.runtime, config.cgroup_driver) == (None, None, None)


def test_file_that_is_no_text_is_a_problem_that_names_it(tmp_path):
    (tmp_path / "config.json").write_bytes(b"\xff\xfe")

    assert "config.json" in load_node_config(tmp_path / "config.json", "n").problems[0]


def test_second_entry_of_a_node_is_reported_and_not_used():
    text = json.dumps({"nodeConfig": [{"name": "n", "cgroupDriver": "systemd"}, {"name": "n"}]})

    config = read_node_config("config.json", text, "n")

    assert config.cgroup_driver == "systemd"
    assert "nodeConfig[1].name='n'" in config.problems[0]


@settings(max_examples=50)
@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_no_text_raises(text):
    assert isinstance(read_node_config("config.json", text, "n"), NodeConfig)


def test_scaling_is_exact():
    assert read_scaling("scaling", 0.9) * 10 == 9
    with pytest.raises(ConfigurationError, match=r"--device-memory-scaling=0: expected"):
        read_scaling("--device-memory-scaling", 0)


def test_file_beats_flags_and_flags_beat_the_host():
    file = NodeConfig(scaling=Fraction(1, 2))
    flags = NodeConfig(Fraction(1, 4), Path("/flag.sock"))
    host = DetectedHost(Path("/host.sock"), "systemd", CgroupLayout(1, Path("/x")))

    setup = resolve_setup(file, flags, host)

    assert (setup.scaling, setup.runtime) == (Fraction(1, 2), Path("/flag.sock"))
    assert setup.cgroup_driver == "systemd"
    assert setup.sources == {"scaling": "file", "runtime": "flag", "cgroup_driver": "host"}


def test_bare_host_gets_defaults():
    setup = resolve_setup(NodeConfig(), NodeConfig(), _BARE)

    assert (setup.scaling, setup.runtime, setup.cgroup_driver) == (Fraction(1), None, "cgroupfs")


def _listen(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def _write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_first_runtime_socket_that_is_there_is_found(tmp_path):
    _listen(tmp_path / "run/containerd/containerd.sock")
    _write(tmp_path / "var/run/dockershim.sock")
    assert detect_host(tmp_path).runtime == Path("/run/containerd/containerd.sock")

    _listen(tmp_path / "run/cri-dockerd.sock")
    assert detect_host(tmp_path).runtime == Path("/run/cri-dockerd.sock")


def test_socket_that_the_kubelet_names_comes_first(tmp_path):
    _listen(tmp_path / "run/containerd/containerd.sock")
    _listen(tmp_path / "opt/own.sock")
    config = "containerRuntimeEndpoint: unix:///opt/own.sock\n"
    _write(tmp_path / "var/lib/kubelet/config.yaml", config)

    assert detect_host(tmp_path).runtime == Path("/opt/own.sock")


@pytest.mark.parametrize(
    ("config", "driver"),
    [
        pytest.param("cgroupDriver: systemd\n", "systemd", id="systemd"),
        pytest.param(
            "cgroupDriver: cgroupfs\nresolvConf: /run/systemd/resolve/resolv.conf\n",
            "cgroupfs",
            id="word-elsewhere",
        ),
        pytest.param("cgroupDriver: [\n", None, id="broken"),
        pytest.param("- 1\n", None, id="no-mapping"),
    ],
)
def test_driver_is_what_the_kubelet_says(tmp_path, config, driver):
    _write(tmp_path / "var/lib/kubelet/config.yaml", config)

    assert detect_host(tmp_path).cgroup_driver == driver


@pytest.mark.parametrize(
    ("tree", "driver"), [("kubepods.slice", "systemd"), ("kubepods", "cgroupfs")]
)
@pytest.mark.parametrize("version", [1, 2])
def test_driver_is_told_by_the_tree_where_the_kubelet_is_silent(tmp_path, tree, driver, version):
    base = tmp_path / "sys/fs/cgroup"
    if version == 2:
        _write(base / "cgroup.controllers", "cpu memory")
    (base / ("memory" if version == 1 else "") / tree).mkdir(parents=True)

    host = detect_host(tmp_path)

    assert (host.cgroup_driver, host.cgroups.version) == (driver, version)


def test_hybrid_host_counts_as_version_one(tmp_path):
    base = tmp_path / "sys/fs/cgroup"
    _write(base / "unified/cgroup.controllers")
    (base / "pids").mkdir()

    assert detect_cgroups(tmp_path) == CgroupLayout(1, base / "pids")
