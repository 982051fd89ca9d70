import json

import pytest

from slicewise.explain.manifest_pods import check_template
from slicewise.explain.manifests import ManifestError, read_manifests


def check(document):
    for template in read_manifests("f.yaml", json.dumps(document)).templates:
        check_template(template)


def pod(**container):
    spec = {"containers": [{"name": "main", **container}]}
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def deployment(**container):
    spec = {"template": {"spec": pod(**container)["spec"]}}
    return {"kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        pytest.param(
            pod(resources={"limits": {"aliyun.com/gpu-memory": 3}}),
            "f.yaml: Pod p: container main: aliyun.com/gpu-memory is no resource that Slicewise "
            "knows: probably aliyun.com/gpu-mem was meant",
            id="misspelt",
        ),
        pytest.param(
            deployment(resources={"limits": {"nvidia.com/vcuda-core": 150}}),
            "f.yaml: Deployment d: container main: nvidia.com/vcuda-core=150: "
            "expected less than 100 or a multiple of 100",
            id="amount",
        ),
        pytest.param(
            pod(resources={"limits": ["cpu"]}),
            "f.yaml: Pod p: spec.containers[0].resources.limits: expected object | null, got array",
            id="list-for-a-map",
        ),
        pytest.param(
            deployment(resources={"limits": {"cpu": None}}),
            "f.yaml: Deployment d: spec.template.spec.containers[0].resources.limits.*: "
            "expected int | float | str, got null",
            id="nothing-for-an-amount",
        ),
        pytest.param(
            deployment(name=3),
            "f.yaml: Deployment d: spec.template.spec.containers[0].name: expected str, got int",
            id="number-for-a-name",
        ),
    ],
)
def test_bad_pod_is_told_by_file_object_and_field(document, words):
    with pytest.raises(ManifestError) as raised:
        check(document)

    assert str(raised.value) == words


def test_pod_in_order_passes_whatever_it_asks_of_others():
    check(pod(resources={"limits": {"cpu": 0.5, "aliyun.com/gpu-mem": 3, "amd.com/gpu": 1}}))
