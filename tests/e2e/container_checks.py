"""What a container of each system must find inside, by that system's contract alone."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from e2e.recorded_gpus import CONTROLS, GPU_MAJOR, Gpu
from e2e.reports import Report, gpu_devices

Devices = Mapping[str, tuple[int, int]]
_DRIVER = ("nvidiactl", "nvidia-uvm")
_HASH = re.compile("[0-9a-f]{8}")
_NEVER = re.compile("NVIDIA_VISIBLE_DEVICES|GPU|ku|ALIYUN_.*|SLICEWISE_.*|CGPU_DISABLE")


@dataclass(frozen=True)
class Giving:
    """Variables and device nodes of one container, and files that must be there."""

    variables: Mapping[str, str]
    devices: Devices
    files: Sequence[str] = field(default=())


def tkestack(pod: Mapping[str, Any], name: str, gpus: Sequence[Gpu], report: Report) -> Giving:
    """UUIDs, the way to the driver's copy, and the folder of the limiter."""
    variables = {
        "NVIDIA_VISIBLE_DEVICES": _uuids(gpus),
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
    }
    return Giving(variables, _nodes(gpus, _DRIVER), ["/etc/vcuda"])


def gpushare(pod: Mapping[str, Any], name: str, gpus: Sequence[Gpu], report: Report) -> Giving:
    """UUIDs, minor numbers, and the account of the memory in GiB."""
    asked = {
        each["name"]: int(each["resources"]["limits"]["aliyun.com/gpu-mem"])
        for each in pod["spec"]["containers"]
    }
    variables = {
        "NVIDIA_VISIBLE_DEVICES": _uuids(gpus),
        "ALIYUN_COM_GPU_MEM_IDX": ",".join(str(gpu.minor) for gpu in gpus),
        "ALIYUN_COM_GPU_MEM_POD": str(sum(asked.values())),
        "ALIYUN_COM_GPU_MEM_CONTAINER": str(asked[name]),
        "ALIYUN_COM_GPU_MEM_DEV": str(gpus[0].memory // 1024),
    }
    return Giving(variables, _nodes(gpus))


def elastic(pod: Mapping[str, Any], name: str, gpus: Sequence[Gpu], report: Report) -> Giving:
    """The hash of the units, and the GPUs under the names that an installed hook looks for."""
    digest = _read_hash(report)
    linked = {
        f"/host/dev/elastic-gpu-{digest}-{at}": (GPU_MAJOR, gpu.minor)
        for at, gpu in enumerate(gpus)
    }
    driver = {f"/host/dev/{name}": numbers for name, numbers in CONTROLS.items()}
    variables = {"GPU": digest, "NVIDIA_VISIBLE_DEVICES": "none"}
    return Giving(variables, {**_nodes(gpus), **linked, **driver})


def percent(pod: Mapping[str, Any], name: str, gpus: Sequence[Gpu], report: Report) -> Giving:
    """As elastic, with one GPU and the number of units beside the hash."""
    digest, (gpu,) = _read_hash(report), gpus
    (container,) = (each for each in pod["spec"]["containers"] if each["name"] == name)
    linked = {
        f"/host/dev/elastic-gpu-{digest}": (GPU_MAJOR, gpu.minor),
        f"/host/dev/elastic-gpuctl-{digest}": CONTROLS["nvidiactl"],
    }
    units = container["resources"]["limits"]["elastic-gpu/gpu-percent"]
    variables = {"GPU": digest, "NVIDIA_VISIBLE_DEVICES": "none", "ku": units}
    return Giving(variables, {**_nodes(gpus), **linked})


def nvidia(pod: Mapping[str, Any], name: str, gpus: Sequence[Gpu], report: Report) -> Giving:
    """Whole GPUs by their UUIDs."""
    return Giving({"NVIDIA_VISIBLE_DEVICES": _uuids(gpus)}, _nodes(gpus))


def slicewise(pod: Mapping[str, Any], name: str, gpus: Sequence[Gpu], report: Report) -> Giving:
    """UUIDs, and how much of each GPU there is."""
    own = {key: report.variables.get(f"SLICEWISE_GPU_{key}", "") for key in ("CORES", "MEMORY_MIB")}
    for amounts in own.values():
        assert re.fullmatch(rf"\d+(,\d+){{{len(gpus) - 1}}}", amounts), own
    variables = {f"SLICEWISE_GPU_{key}": amounts for key, amounts in own.items()}
    return Giving({"NVIDIA_VISIBLE_DEVICES": _uuids(gpus), **variables}, _nodes(gpus))


Contract = Callable[[Mapping[str, Any], str, Sequence[Gpu], Report], Giving]
CONTRACTS: Mapping[str, Contract] = {
    "nvidia.com/vcuda-core": tkestack,
    "tencent.com/vcuda-core": tkestack,
    "aliyun.com/gpu-mem": gpushare,
    "elasticgpu.io/gpu-core": elastic,
    "elasticgpu.io/gpu-memory": elastic,
    "elastic-gpu/gpu-percent": percent,
    "nvidia.com/gpu": nvidia,
    "slicewise.io/gpu": slicewise,
    "slicewise.io/cores": slicewise,
    "slicewise.io/memory": slicewise,
}


def check_container(pod: Mapping[str, Any], name: str, gpus: Sequence[Gpu], report: Report) -> None:
    """The container found what its system's contract says of these GPUs, and nothing more."""
    (container,) = (each for each in pod["spec"]["containers"] if each["name"] == name)
    limits = container["resources"]["limits"]
    (contract,) = {CONTRACTS[each] for each in limits if each in CONTRACTS}
    giving = contract(pod, name, gpus, report)
    told = {key: text for key, text in report.variables.items() if _NEVER.fullmatch(key)}
    where = f"{pod['metadata']['name']}/{name} allocated {gpus}"
    assert giving.variables.items() <= report.variables.items(), (where, told)
    assert told.keys() <= giving.variables.keys(), (where, told)
    assert gpu_devices(report) == giving.devices, where
    assert set(giving.files) <= set(report.files), where


def _uuids(gpus: Sequence[Gpu]) -> str:
    return ",".join(gpu.uuid for gpu in gpus)


def _nodes(gpus: Sequence[Gpu], driver: Sequence[str] = tuple(CONTROLS)) -> Devices:
    return {
        **{f"/dev/{gpu.device}": (GPU_MAJOR, gpu.minor) for gpu in gpus},
        **{f"/dev/{name}": CONTROLS[name] for name in driver},
    }


def _read_hash(report: Report) -> str:
    digest = report.variables.get("GPU", "")
    assert _HASH.fullmatch(digest), report.variables
    return digest
