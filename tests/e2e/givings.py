"""What a container of each system must find inside, by that system's contract alone."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from e2e.promises import CARD_MAJOR, CONTROLS, Card
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


def tkestack(pod: Mapping[str, Any], name: str, cards: Sequence[Card], report: Report) -> Giving:
    """UUIDs, the way to the driver's copy, and the folder of the limiter."""
    variables = {
        "NVIDIA_VISIBLE_DEVICES": _uuids(cards),
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
    }
    return Giving(variables, _nodes(cards, _DRIVER), ["/etc/vcuda"])


def gpushare(pod: Mapping[str, Any], name: str, cards: Sequence[Card], report: Report) -> Giving:
    """UUIDs, minor numbers, and the account of the memory in GiB."""
    asked = {
        each["name"]: int(each["resources"]["limits"]["aliyun.com/gpu-mem"])
        for each in pod["spec"]["containers"]
    }
    variables = {
        "NVIDIA_VISIBLE_DEVICES": _uuids(cards),
        "ALIYUN_COM_GPU_MEM_IDX": ",".join(str(card.minor) for card in cards),
        "ALIYUN_COM_GPU_MEM_POD": str(sum(asked.values())),
        "ALIYUN_COM_GPU_MEM_CONTAINER": str(asked[name]),
        "ALIYUN_COM_GPU_MEM_DEV": str(cards[0].memory // 1024),
    }
    return Giving(variables, _nodes(cards))


def elastic(pod: Mapping[str, Any], name: str, cards: Sequence[Card], report: Report) -> Giving:
    """The hash of the units, and the cards under the names that an installed hook looks for."""
    digest = _read_hash(report)
    linked = {
        f"/host/dev/elastic-gpu-{digest}-{at}": (CARD_MAJOR, card.minor)
        for at, card in enumerate(cards)
    }
    driver = {f"/host/dev/{name}": numbers for name, numbers in CONTROLS.items()}
    variables = {"GPU": digest, "NVIDIA_VISIBLE_DEVICES": "none"}
    return Giving(variables, {**_nodes(cards), **linked, **driver})


def percent(pod: Mapping[str, Any], name: str, cards: Sequence[Card], report: Report) -> Giving:
    """As elastic, with one card and the number of units beside the hash."""
    digest, (card,) = _read_hash(report), cards
    (container,) = (each for each in pod["spec"]["containers"] if each["name"] == name)
    linked = {
        f"/host/dev/elastic-gpu-{digest}": (CARD_MAJOR, card.minor),
        f"/host/dev/elastic-gpuctl-{digest}": CONTROLS["nvidiactl"],
    }
    units = container["resources"]["limits"]["elastic-gpu/gpu-percent"]
    variables = {"GPU": digest, "NVIDIA_VISIBLE_DEVICES": "none", "ku": units}
    return Giving(variables, {**_nodes(cards), **linked})


def nvidia(pod: Mapping[str, Any], name: str, cards: Sequence[Card], report: Report) -> Giving:
    """Whole cards by their UUIDs."""
    return Giving({"NVIDIA_VISIBLE_DEVICES": _uuids(cards)}, _nodes(cards))


def slicewise(pod: Mapping[str, Any], name: str, cards: Sequence[Card], report: Report) -> Giving:
    """UUIDs, and how much of each card there is."""
    own = {key: report.variables.get(f"SLICEWISE_GPU_{key}", "") for key in ("CORES", "MEMORY_MIB")}
    for amounts in own.values():
        assert re.fullmatch(rf"\d+(,\d+){{{len(cards) - 1}}}", amounts), own
    variables = {f"SLICEWISE_GPU_{key}": amounts for key, amounts in own.items()}
    return Giving({"NVIDIA_VISIBLE_DEVICES": _uuids(cards), **variables}, _nodes(cards))


Contract = Callable[[Mapping[str, Any], str, Sequence[Card], Report], Giving]
CONTRACTS: Mapping[str, Contract] = {
    "nvidia.com/vcuda-core": tkestack,
    "tencent.com/vcuda-core": tkestack,
    "aliyun.com/gpu-mem": gpushare,
    "elasticgpu.io/gpu-core": elastic,
    "elastic-gpu/gpu-percent": percent,
    "nvidia.com/gpu": nvidia,
    "slicewise.io/gpu": slicewise,
    "slicewise.io/cores": slicewise,
}


def check_giving(pod: Mapping[str, Any], name: str, cards: Sequence[Card], report: Report) -> None:
    """The container found what its system's contract says of these cards, and nothing more."""
    (container,) = (each for each in pod["spec"]["containers"] if each["name"] == name)
    limits = container["resources"]["limits"]
    (contract,) = {CONTRACTS[each] for each in limits if each in CONTRACTS}
    giving = contract(pod, name, cards, report)
    told = {key: text for key, text in report.variables.items() if _NEVER.fullmatch(key)}
    where = f"{pod['metadata']['name']}/{name} promised {cards}"
    assert giving.variables.items() <= report.variables.items(), (where, told)
    assert told.keys() <= giving.variables.keys(), (where, told)
    assert gpu_devices(report) == giving.devices, where
    assert set(giving.files) <= set(report.files), where


def _uuids(cards: Sequence[Card]) -> str:
    return ",".join(card.uuid for card in cards)


def _nodes(cards: Sequence[Card], driver: Sequence[str] = tuple(CONTROLS)) -> Devices:
    return {
        **{f"/dev/{card.device}": (CARD_MAJOR, card.minor) for card in cards},
        **{f"/dev/{name}": CONTROLS[name] for name in driver},
    }


def _read_hash(report: Report) -> str:
    digest = report.variables.get("GPU", "")
    assert _HASH.fullmatch(digest), report.variables
    return digest
