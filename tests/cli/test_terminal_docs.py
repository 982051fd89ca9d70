import json
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

import builders
from cli.gpushare_cluster import add_node, add_pod
from slicewise.cli.inspect_gpushare import main as inspect_gpushare
from slicewise.cli.main import CLUSTER_COMMANDS
from slicewise.dialects import ALLOCATION, GPUS, write_gpus
from slicewise_playground.cluster import Playground

TEXT = (Path(__file__).parents[2] / "docs" / "terminal.md").read_text()


def options(address):
    module, _, name = address.partition(":")
    command = getattr(import_module(module), name)
    return [each for each in command.params if getattr(each, "hidden", False) is False]


def test_every_verb_is_documented():
    assert [verb for verb in CLUSTER_COMMANDS if f"`kubectl slicewise {verb}" not in TEXT] == []


@pytest.mark.parametrize("verb", sorted(set(CLUSTER_COMMANDS) - {"audit"}))
def test_every_flag_of_a_verb_is_documented(verb):
    flags = [
        max(each.opts, key=len)
        for each in options(CLUSTER_COMMANDS[verb])
        if each.opts[0].startswith("-")
    ]

    known = ("--output", "--namespace", "--filename", "--help")
    assert [flag for flag in flags if f"`{flag}" not in TEXT and flag not in known] == []


def sample_cluster():
    """A node of gpushare's own plugin, and one that Slicewise's agent describes."""
    cluster = Playground()
    gpus = (builders.gpu(0, memory=81920), builders.gpu(1, memory=23028, model="NVIDIA A10"))
    annotations = {GPUS: write_gpus(builders.node("mixed-0", gpus))}
    add_node(cluster, "a30-0", "10.0.0.2", memory=46, count=2)
    add_node(cluster, "mixed-0", "10.0.0.6", memory=102, count=2, annotations=annotations)
    add_pod(cluster, "binpack-1-0", "a30-0", 3, idx="0", pod="3")
    add_pod(cluster, "binpack-1-1", "a30-0", 3, idx="0", pod="3")
    add_pod(cluster, "by-hand", "a30-0", 2)
    add_pod(cluster, "two-gpus", "mixed-0", 16, division='{"0":{"0":8,"1":8}}', idx="0,1")
    record = {"containers": {"main": [[0, "GPU-0", 30, 5000]]}, "node": "mixed-0"}
    limits = {"slicewise.io/cores": "30", "slicewise.io/memory": "5000"}
    add_pod(cluster, "share", "mixed-0", limits=limits, **{ALLOCATION: json.dumps(record)})
    return cluster


@pytest.mark.parametrize("words", [(), ("a30-0", "-d")])
def test_samples_of_inspect_are_what_it_prints(tmp_path, words):
    with sample_cluster() as cluster:
        path = cluster.write_kubeconfig(tmp_path / "kubeconfig")
        shown = CliRunner().invoke(inspect_gpushare, [*words, "--kubeconfig", str(path)]).stdout

    assert f"$ {' '.join(('kubectl inspect gpushare', *words))}\n{shown}```" in TEXT, shown
