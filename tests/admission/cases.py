"""What tenants write, and what is to become of it, whether policies or the webhook decide."""

MARKS = [
    "slicewise.io/allocation",
    "slicewise.io/signature",
    "slicewise.io/quota-changed",
    "slicewise.io/nudged",
    "nvidia.com/predicate-gpu-idx-0",
    "nvidia.com/predicate-node",
    "nvidia.com/gpu-assigned",
    "tencent.com/predicate-gpu-idx-1",
    "tencent.com/predicate-time",
    "tencent.com/gpu-assigned",
    "ALIYUN_COM_GPU_MEM_IDX",
    "ALIYUN_COM_GPU_MEM_ASSIGNED",
    "scheduler.framework.gpushare.allocation",
    "elasticgpu.io/container-main",
    "elasticgpu.io/assumed",
    "elastic-gpu/container-main",
    "elastic-gpu/assume",
    "nano-gpu/container-main",
    "nano-gpu/assume",
    "hami.io/vgpu-devices-allocated",
    "hami.io/vgpu-node",
    "hami.io/bind-phase",
]
LABELS = [
    "tydic.io/bind-time",
    "tydic.io/bind-phase",
    "elasticgpu.io/assumed",
    "elastic-gpu/assume",
    "nano-gpu/assume",
]
OPEN = [
    "slicewise.io/shares.main",
    "slicewise.io/models",
    "slicewise.io/topology",
    "slicewise.io/policy",
    "nvidia.com/use-gputype",
    "nvidia.com/nouse-gputype",
    "nvidia.com/vcuda-core-limit",
    "tencent.com/vcuda-core-limit",
    "nvidia-gpu-scheduler/gpu.model",
    "hami.io/node-scheduler-policy",
]
# Marks that a pod has, and what a tenant may not do to them.
KEPT = {
    "annotations": {"slicewise.io/allocation": "{}", "tencent.com/predicate-gpu-idx-0": "0"},
    "labels": {"tydic.io/bind-phase": "success"},
}
FORGERIES = [
    {"annotations": {"slicewise.io/signature": "s"}},
    {"annotations": {"slicewise.io/allocation": "{1}"}},
    {"annotations": {"tencent.com/predicate-gpu-idx-0": None}},
    {"labels": {"tydic.io/bind-phase": None}},
    {"labels": {"tydic.io/bind-phase": "failed"}},
]
GPU_LIMITS = [{"nvidia.com/gpu": "1"}, {"tencent.com/vcuda-core": "100"}]
# Limits, and the words of the refusal.
UNSERVED = [
    ({"nvidia.com/gpus": "1"}, "nvidia.com/gpus is no resource.*probably nvidia.com/gpu was"),
    ({"tencent.com/vcuda-cores": "10"}, "probably tencent.com/vcuda-core was meant"),
    ({"aliyun.com/gpu_mem": "3"}, "probably aliyun.com/gpu-mem was meant"),
    ({"elasticgpu.io/gpu-parts": "1"}, "expected one of .*elasticgpu.io/gpu-core"),
    (
        {"tencent.com/vcuda-core": "150", "tencent.com/vcuda-memory": "1"},
        "container main: tencent.com/vcuda-core=150: expected less than 100 or a multiple",
    ),
    ({"tencent.com/vcuda-core": "30"}, "expected tencent.com/vcuda-memory beside it"),
    ({"elasticgpu.io/gpu-core": "150"}, "elasticgpu.io/gpu-core=150: expected less than 100"),
    ({"slicewise.io/cores": "101"}, "slicewise.io/cores=101: expected at most 100"),
    ({"nvidia.com/gpu": "65"}, "nvidia.com/gpu=65: expected at most 64"),
]
SERVED = [
    {"tencent.com/vcuda-core": "30", "tencent.com/vcuda-memory": "4"},
    {"nvidia.com/vcuda-core": "200"},
    {"aliyun.com/gpu-mem": "4"},
    {"nvidia.com/gpu": "2"},
    {"slicewise.io/cores": "100", "slicewise.io/gpu": "2"},
    {"slicewise.io/memory": "256", "slicewise.io/carrier": "1"},
    {"elastic-gpu/gpu-percent": "30"},
    {"nvidia.com/mig-1g.5gb": "1"},
    {"example.com/thing": "1"},
]
# Limits, and whether the container is given the carrier.
CARRIED = [
    ({"elasticgpu.io/gpu-memory": "256"}, True),
    ({"slicewise.io/memory": "256"}, True),
    ({"slicewise.io/memory": "256", "slicewise.io/cores": "5"}, False),
    ({"aliyun.com/gpu-mem": "3"}, False),
]


def pod(name="p", limits=None, annotations=None, labels=None, env=None, **spec):
    """A pod of one container as a tenant writes it."""
    container = {"name": "main", "image": "x", "resources": {"limits": limits or {}}}
    if env is not None:
        container["env"] = env
    meta = {"name": name, "annotations": annotations or {}, "labels": labels or {}}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


def devices(value):
    """A pod that sets the variable by which NVIDIA's runtime hands out GPUs."""
    return pod(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}])
