"""A tenant tries to keep others off GPUs it was not given."""

import json
from typing import Any

import pytest

from e2e.gpu_nodes import A10, mixed_node
from hostile.forged_marks import SYSTEMS, forge_pod, honest_pod
from hostile.tenancy import GPUS, RECORD, SIGNATURE, Pod, Tenancy, make_pod, on, whole

pytestmark = pytest.mark.cluster
NODE = "gpu"
ALL = "0,1,2,3"
GATED = {"schedulingGates": [{"name": "mallory.example/never"}]}
FOUR = json.dumps(
    {
        "containers": {"main": [[gpu.index, gpu.uuid, 100, gpu.memory] for gpu in GPUS]},
        "node": NODE,
    }
)


def claim(name: str, limits: dict[str, int], marks: dict[str, str], **spec: Any) -> Pod:
    """A pod that says of itself that it holds every GPU of the node."""
    return make_pod(name, limits, metadata={"annotations": marks}, **spec)


def tkestack_marks(prefix: str) -> dict[str, str]:
    """gpu-admission's marks of all four GPUs."""
    return {
        f"{prefix}/predicate-node": NODE,
        f"{prefix}/predicate-gpu-idx-0": ALL,
        f"{prefix}/gpu-assigned": "false",
        f"{prefix}/predicate-time": "1700000000000000000",
    }


UNBOUND = (
    claim("fork", {"nvidia.com/vcuda-core": 400}, tkestack_marks("nvidia.com"), **GATED),
    claim("upstream", {"tencent.com/vcuda-core": 400}, tkestack_marks("tencent.com"), **GATED),
    claim(
        "node-alone", {"nvidia.com/vcuda-core": 400}, {"nvidia.com/predicate-node": NODE}, **GATED
    ),
    claim("own", {"slicewise.io/gpu": 4}, {RECORD: FOUR}, **GATED),
    claim("signed", {"slicewise.io/gpu": 4}, {RECORD: FOUR, SIGNATURE: "0.0"}, **GATED),
    claim("nvidia", {"nvidia.com/gpu": 4}, {RECORD: FOUR}, **GATED),
    claim("no-gpu", {}, {RECORD: FOUR, **tkestack_marks("nvidia.com")}, **GATED),
)
BOUND = (
    claim("garbage", {"slicewise.io/cores": 1}, {RECORD: "{garbage"}, nodeName=NODE),
    claim(
        "unknown-gpu",
        {"slicewise.io/cores": 1},
        {RECORD: FOUR.replace("GPU-", "GPX-")},
        nodeName=NODE,
    ),
    claim("two-systems", {"slicewise.io/cores": 1, "aliyun.com/gpu-mem": 1}, {}, nodeName=NODE),
    claim("no-marks", {"aliyun.com/gpu-mem": 1}, {}, nodeName=NODE),
    claim(
        "bad-limits", {"nvidia.com/vcuda-core": 150}, tkestack_marks("nvidia.com"), nodeName=NODE
    ),
    claim("everything", {"slicewise.io/cores": 1}, {RECORD: FOUR, SIGNATURE: "0.0"}, nodeName=NODE),
    *(
        forge_pod(f"forged-{name}", name, NODE, GPUS[0], nodeName=NODE)
        for name in SYSTEMS
        if name != "nvidia"
    ),
)

RAISED = {
    **tkestack_marks("nvidia.com"),
    **tkestack_marks("tencent.com"),
    "ALIYUN_COM_GPU_MEM_POD": "96",
    "ALIYUN_COM_GPU_MEM_IDX": ALL,
    "elasticgpu.io/container-main": ALL,
    "elastic-gpu/container-main": ALL,
    "slicewise.io/shares.main": "whole",
    RECORD: FOUR,
}


@pytest.mark.parametrize("pods", [UNBOUND, BOUND], ids=["unbound", "bound"])
def test_claims_of_a_tenant_keep_no_gpu_from_others(
    tenancy: Tenancy, pods: tuple[Pod, ...]
) -> None:
    tenancy.tenant.create(*pods)

    tenancy.run(tenancy.victim, whole("all-four", 4, **on(NODE)))

    (devices,) = tenancy.devices(tenancy.victim, "all-four")
    assert devices == {gpu.device for gpu in GPUS}


def test_marks_raised_after_the_bind_charge_no_more(tenancy: Tenancy) -> None:
    names = [name for name in SYSTEMS if name != "nvidia"]
    tenancy.run(tenancy.tenant, *(honest_pod(name, name, **on(NODE)) for name in names))
    before = tenancy.held()

    for name in names:
        tenancy.tenant.annotate(name, RAISED, labels={"aliyun.com/gpu-count": "4"})
    tenancy.catch_up()

    assert tenancy.held() == before


def test_pod_of_513_containers_takes_no_gpu_of_its_node(tenancy: Tenancy) -> None:
    tenancy.cluster.add_nodes(mixed_node("crowded", A10, 4))
    pod = make_pod("crowd", {}, nodeName="crowded")
    (container,) = pod["spec"]["containers"]
    many = [{**container, "name": f"c{at}", "ports": []} for at in range(513)]
    pod["spec"]["containers"] = many
    tenancy.tenant.create(pod)

    tenancy.victim.create(whole("all-four", 4, **on("crowded")))

    found = tenancy.victim.wait("all-four", lambda pod: pod["spec"].get("nodeName"))
    assert found["spec"]["nodeName"] == "crowded"
