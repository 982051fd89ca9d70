"""Every example is read by its own dialect, placed, and read back from its record."""

import json
import re
from pathlib import Path

import pytest
import yaml

import builders
from slicewise.cluster import read_quota
from slicewise.dialects import DEFAULT, apply_record
from slicewise.dialects.scheduler_documents import Conversion, convert_document
from slicewise.explain.claim_manifests import convert_manifest, write_device_class
from slicewise.extender.protocol import decode_pod
from slicewise.placement import PlacementRequest, Planner

EXAMPLES = Path(__file__).parents[2] / "examples"
CLAIMS = EXAMPLES / "claim-templates.yaml"
DIALECTS = {
    "gpu-admission": "tkestack",
    "gpu-manager": "tkestack",
    "nvidia-gpu-scheduler": "gpuscheduler",
    "gpushare": "gpushare",
    "elastic-gpu": "elastic",
    "slicewise": "slicewise",
}


def documents():
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            yield path, document


def pods():
    for path, document in documents():
        template = (
            document if document["kind"] == "Pod" else document.get("spec", {}).get("template")
        )
        if template is None:
            continue
        metadata = {"name": document["metadata"]["name"], "namespace": "x", "uid": "u"}
        metadata |= {key: template["metadata"].get(key) for key in ("labels", "annotations")}
        body = json.dumps({"metadata": metadata, "spec": template["spec"]}).encode()
        yield pytest.param(path.parent.name, decode_pod(body), id=f"{path.parent.name}-{path.stem}")


def cluster():
    return builders.snapshot(
        builders.node("a100", 8),
        builders.node("a10", 4, model="NVIDIA A10", memory=24576),
        builders.node("t4", 4, model="Tesla T4", memory=15360),
    )


def test_every_system_has_examples():
    assert {path.parent.name for path, _ in documents()} == {*DIALECTS, CLAIMS.parent.name}


def test_templates_of_claims_are_what_the_examples_of_every_system_convert_to():
    sources = re.findall(r"^# (\S+\.yaml)$", CLAIMS.read_text(), re.M)
    written = list(yaml.safe_load_all(CLAIMS.read_text()))
    converted = [
        made
        for source in sources
        for document in yaml.safe_load_all((EXAMPLES / source).read_text())
        for made in convert_manifest(source, document)
        if made["kind"] == "ResourceClaimTemplate"
    ]

    assert {source.partition("/")[0] for source in sources} == set(DIALECTS)
    assert written == [write_device_class(), *converted]


@pytest.mark.parametrize(("folder", "pod"), list(pods()))
def test_example_is_read_placed_and_read_back(folder, pod):
    assert DEFAULT.claim(pod).name == DIALECTS[folder]
    request, snapshot = DEFAULT.read_request(pod), cluster()

    allocation = Planner().place(snapshot, PlacementRequest(request)).allocation

    node = snapshot.get(allocation.node).node
    record = DEFAULT.record_allocation(pod, request, allocation, node, now_ns=1)
    assert DEFAULT.read_allocation(apply_record(pod, record), node) == allocation


def test_gpushare_pod_gets_3_gib_on_each_of_four_gpus():
    (pod,) = (
        decode_pod(json.dumps(document).encode())
        for path, document in documents()
        if path.name == "four-gpus.yaml"
    )

    allocation = Planner().place(cluster(), PlacementRequest(DEFAULT.read_request(pod))).allocation

    assert [piece.memory for piece in allocation.slices_of("trainer")] == [3072] * 4
    assert len(allocation.gpus) == 4


def test_a10_is_not_taken_for_an_a100():
    (pod,) = (each.values[1] for each in pods() if "gpu-admission" in each.id)

    allocation = Planner().place(cluster(), PlacementRequest(DEFAULT.read_request(pod))).allocation

    assert allocation.node == "a10"


def test_policy_files_convert():
    for path in EXAMPLES.rglob("*.json"):
        config = convert_document(json.loads(path.read_text()), Conversion())
        assert config["extenders"][0]["urlPrefix"].endswith("/scheduler")


def test_quota_example_reads():
    (text,) = (
        document["data"]["gpu_quota"]
        for _, document in documents()
        if document["kind"] == "ConfigMap" and document["metadata"]["name"] == "gpuquota"
    )

    assert read_quota(text).namespaces["team-a"].gpus == {"A100": 2, "A10": 1}
