import pytest

from slicewise.explain.claim_manifests import convert_manifest
from slicewise.explain.manifests import ManifestError


def pod(limits, annotations=None, **more):
    container = {"name": "main", "image": "x", "resources": {"limits": limits}}
    meta = {"name": "p", "annotations": annotations or {}}
    return {"kind": "Pod", "metadata": meta, "spec": {"containers": [container], **more}}


def convert(document):
    made, changed = convert_manifest("pod.yaml", document)
    return made["spec"]["spec"]["devices"], changed


@pytest.mark.parametrize(
    ("limits", "amounts"),
    [
        pytest.param(
            {"nvidia.com/vcuda-core": 30, "nvidia.com/vcuda-memory": 4096},
            {"cores": "30", "memory": "4096Mi"},
            id="gpu-manager",
        ),
        pytest.param(
            {"aliyun.com/gpu-mem": 4}, {"cores": "0", "memory": "4096Mi"}, id="gpushare-memory"
        ),
        pytest.param(
            {"elastic-gpu/gpu-percent": 20}, {"cores": "20", "memory": "1Mi"}, id="elastic-percent"
        ),
        pytest.param(
            {"slicewise.io/cores": 30, "slicewise.io/memory": 4096},
            {"cores": "30", "memory": "4096Mi"},
            id="slicewise",
        ),
    ],
)
def test_every_systems_share_becomes_an_amount_of_a_claim(limits, amounts):
    devices, changed = convert(pod({**limits, "cpu": "1"}))

    (request,) = devices["requests"]
    assert request["exactly"]["capacity"]["requests"] == amounts
    (container,) = changed["spec"]["containers"]
    assert container["resources"] == {
        "limits": {"cpu": "1"},
        "claims": [{"name": "gpu", "request": "main"}],
    }
    assert changed["spec"]["resourceClaims"] == [
        {"name": "gpu", "resourceClaimTemplateName": "p-gpu"}
    ]


def test_whole_gpus_of_a_model_are_counted_and_selected():
    devices, changed = convert(
        pod({"nvidia.com/gpu": 2}, {"nvidia.com/gpu.model": "Tesla T4", "mine": "kept"})
    )

    (request,) = devices["requests"]
    (selector,) = request["exactly"]["selectors"]
    assert request["exactly"]["count"] == 2
    assert "capacity" not in request["exactly"]
    assert 'productName.lowerAscii().contains("tesla t4")' in selector["cel"]["expression"]
    assert changed["metadata"]["annotations"] == {"mine": "kept"}


def test_unequal_shares_are_requests_on_different_gpus():
    shares = {"slicewise.io/shares.main": "whole,30%:4096"}
    devices, changed = convert(pod({"slicewise.io/gpu": 2}, shares))

    assert [each["name"] for each in devices["requests"]] == ["main-0", "main-1"]
    assert devices["constraints"] == [
        {"distinctAttribute": "gpu.slicewise.io/uuid", "requests": ["main-0", "main-1"]}
    ]
    (container,) = changed["spec"]["containers"]
    assert [each["request"] for each in container["resources"]["claims"]] == ["main-0", "main-1"]


def test_pods_of_a_deployment_are_converted_inside_it():
    inside = pod({"aliyun.com/gpu-mem": 4})
    template = {"metadata": inside["metadata"], "spec": inside["spec"]}
    document = {"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": template}}

    _, changed = convert(document)

    claims = changed["spec"]["template"]["spec"]["resourceClaims"]
    assert claims == [{"name": "gpu", "resourceClaimTemplateName": "d-gpu"}]


def test_object_without_gpus_stays_as_it_is():
    document = pod({"cpu": "1"})

    assert list(convert_manifest("pod.yaml", document)) == [document]


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        pytest.param({"slicewise.io/topology": "required:pcie"}, "topology pcie", id="pcie"),
        pytest.param({"slicewise.io/models": 'a"b'}, "quotation mark", id="quotation-mark"),
    ],
)
def test_what_a_claim_cannot_say_is_an_error_that_names_it(annotations, words):
    with pytest.raises(ManifestError, match=rf"pod.yaml: Pod p: .*{words}"):
        convert(pod({"slicewise.io/gpu": 2}, annotations))
