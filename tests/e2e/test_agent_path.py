"""The examples of every system on one real node: scheduler, extender, agent, container."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from e2e.agent_node import AgentNode
from e2e.container_checks import check_container
from e2e.gpu_cluster import read_manifests
from e2e.recorded_gpus import make_gpus
from e2e.reports import COMMAND

pytestmark = pytest.mark.cluster
EXAMPLES = Path(__file__).parents[2] / "examples"
# Whole GPUs first, since shares would be spread over all of them.
FILES = (
    "nvidia-gpu-scheduler/two-of-a-model.yaml",
    "gpu-manager/vcuda-two-gpus.yaml",
    "slicewise/linked-gpus.yaml",
    "slicewise/unequal-shares.yaml",
    "slicewise/team.yaml",
    "slicewise/share.yaml",
    "gpu-manager/vcuda.yaml",
    "gpu-admission/gpu-pod2.yaml",
    "gpushare/four-gpus.yaml",
    "gpushare/binpack-1.yaml",
    "elastic-gpu/cuda-gpu-test.yaml",
)
PODS = {"team-a": 4, "examples": 12}
GPUS = make_gpus(
    (8, "NVIDIA A100-SXM4-40GB", 40960), (4, "NVIDIA A10", 24576), (4, "Tesla T4", 15360)
)


def test_containers_of_all_examples_print_what_their_systems_document(
    agent_node: AgentNode,
) -> None:
    agent_node.use_gpus(GPUS)
    agent_node.start_agent()
    profiles = [{"schedulerName": name} for name in ("default-scheduler", "gpu-scheduler")]
    agent_node.start_extender(profiles=profiles)

    for document in map(substitute, read_manifests(EXAMPLES, FILES)):
        space = document["metadata"].get("namespace", "examples")
        agent_node.cluster.apply(document, namespace=space)

    for space, count in PODS.items():
        pods = agent_node.wait_spoken(space, count, 180)
        allocations = agent_node.allocations(pods)
        for pod in pods:
            for container, reports in agent_node.reports(pod).items():
                (report,) = reports
                gpus = allocations[pod["metadata"]["name"]][container]
                check_container(pod, container, gpus, report)
                check_wish(pod, {gpu.model for gpu in gpus})


def substitute(document: dict[str, Any]) -> dict[str, Any]:
    """The document with an image that is here, and a command that prints what it finds."""
    for container in _containers(document):
        container["image"], container["command"] = "busybox:local", COMMAND
    return document


def _containers(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    spec = document.get("spec", {})
    yield from spec.get("template", {}).get("spec", spec).get("containers", ())


def check_wish(pod: Mapping[str, Any], models: set[str]) -> None:
    """The GPUs are of a model that the pod asks for, and of none that it refuses."""
    wishes = pod["metadata"]["annotations"]
    for key in ("nvidia.com/use-gputype", "nvidia.com/gpu.model"):
        if key in wishes:
            assert all(re.search(wishes[key], model, re.I) for model in models)
    if "slicewise.io/models-refused" in wishes:
        assert not any("T4" in model for model in models)
