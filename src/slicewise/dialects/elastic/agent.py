"""What elastic-gpu's resources are made of, and what their containers receive."""

import hashlib
from collections.abc import Iterable
from typing import Final

from slicewise.dialects.elastic import pods
from slicewise.dialects.shared import injection
from slicewise.dialects.shared.dialect import AgentPart, HostLinks
from slicewise.dialects.shared.injection import ContainerGpus, DeviceNode, Injection, Link
from slicewise.dialects.shared.limits import find_edition
from slicewise.dialects.shared.offers import OfferedEdition, OfferedResource, percents, units
from slicewise.model import HOOKED

_GPU_LINK: Final = "elastic-gpu-"
_CONTROL_LINK: Final = "elastic-gpuctl-"


def offer(
    name: str, names: pods.ElasticNames, socket: str, prefix: str, *, by_default: bool = False
) -> OfferedEdition:
    # The hash in the links' names knows no resource, so no two resources may share an id.
    tail = "" if names.memory is None else "-core"
    core = OfferedResource(names.core, f"{socket}{tail}.sock", percents, prefix=prefix, by_gpu=True)
    resources = [core]
    if names.memory is not None:
        path = f"{socket}-mem.sock"
        resources.append(OfferedResource(names.memory, path, units(1), prefix=f"{prefix}m"))
    return OfferedEdition(name, tuple(resources), by_default=by_default)


def hash_ids(ids: Iterable[str]) -> str:
    """elastic-gpu's name for a set of units: eight digits that its host links carry."""
    return hashlib.sha256(":".join(sorted(ids)).encode()).hexdigest()[:8]


def inject(held: ContainerGpus) -> Injection:
    """The GPUs, and the host links by which an installed hook of elastic-gpu finds them."""
    names = find_edition(held.pod, pods.EDITIONS)
    digest = hash_ids(held.ids)
    env = {"GPU": digest, injection.VISIBLE: "none"}
    many = names.memory is not None
    if not many:
        env["ku"] = str(len(held.ids))
    links: list[Link] = []
    devices = list(injection.gpu_nodes(held))
    for at, gpu in enumerate(held.gpus):
        tail = f"{digest}-{at}" if many else digest
        links.append(Link(f"{_GPU_LINK}{tail}", f"nvidia{gpu.minor}"))
        links.append(Link(f"{_CONTROL_LINK}{tail}", "nvidiactl"))
        # The real node, for a runtime that follows no links must find a device there.
        devices.append(DeviceNode(f"nvidia{gpu.minor}", f"/host/dev/{_GPU_LINK}{tail}"))
        if not many:
            devices.append(DeviceNode("nvidiactl", f"/host/dev/{_CONTROL_LINK}{tail}"))
            break
    if many:
        devices += [
            DeviceNode(name, f"/host/dev/{name}") for name in (*injection.CONTROLS, injection.TOOLS)
        ]
    return Injection(env=env, devices=tuple(devices), links=tuple(links))


AGENT: Final = AgentPart(
    editions=(
        offer("elastic", pods.CURRENT, "elastic-gpushare", "", by_default=True),
        offer("elastic-com", pods.ALIAS, "elastic-com", "com-"),
        offer("elastic-percent", pods.PERCENT, "elastic-gpu", "nano-", by_default=True),
        offer("nano", pods.NANO_OLD, "nano-gpu", "old-"),
        offer("nano-percent", pods.NANO, "nano-gpu-percent", "percent-"),
    ),
    inject=inject,
    isolation=HOOKED,
    links=HostLinks(prefixes=(_GPU_LINK, _CONTROL_LINK), digest=hash_ids),
)
