"""A tenant whose pod has devices beside its GPUs, which a ResourceClaim serves."""

import msgspec
import pytest

import builders
from slicewise.cluster import Ledger, NodeSeen, PodSeen
from slicewise.dialects import DEFAULT
from slicewise.kube.objects import PodBody
from slicewise.model import Slice
from slicewise.state.settings import open_reader

NIC = "deviceclass.resource.kubernetes.io/nic.example.com"
RECORD = '{"containers":{"c0":[[1,"GPU-n0-1",30,4096]]},"node":"n0"}'


def read_pod(limits, served):
    """A bound pod with a record, of whose resources a claim serves these."""
    mappings = [
        {"containerName": "c0", "resourceName": name, "requestName": "r"} for name in served
    ]
    body = {
        "metadata": {
            "name": "p0",
            "namespace": "ml",
            "uid": "u0",
            "annotations": {"slicewise.io/allocation": RECORD},
        },
        "spec": {
            "nodeName": "n0",
            "containers": [{"name": "c0", "resources": {"limits": limits}}],
        },
        "status": {
            "phase": "Running",
            "extendedResourceClaimStatus": {
                "resourceClaimName": "p0-x",
                "requestMappings": mappings,
            },
        },
    }
    return open_reader().read_pod(msgspec.convert(body, PodBody))


SHARE = {"slicewise.io/cores": "30", "slicewise.io/memory": "4096"}


@pytest.mark.parametrize(
    "served",
    [
        pytest.param([NIC], id="another-device"),
        pytest.param([], id="nothing"),
        pytest.param([NIC, "slicewise.io/cores"], id="a-part-of-the-share"),
    ],
)
def test_claim_for_another_device_frees_no_gpu(served):
    ledger = Ledger(DEFAULT)
    ledger.apply(NodeSeen(builders.node("n0")))

    ledger.apply(PodSeen(read_pod({**SHARE, NIC: "1"}, served)))

    assert ledger.allocation("u0") == (Slice(1, 30, 4096),)


def test_claim_that_serves_the_gpus_is_counted_by_itself():
    pod = read_pod({"nvidia.com/gpu": "1", NIC: "1", "cpu": "2"}, [NIC, "nvidia.com/gpu"])

    assert pod.by_claim
