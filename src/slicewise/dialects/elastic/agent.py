"""What elastic-gpu's resources are made of, and what their containers receive."""

import hashlib
from collections.abc import Iterable
from typing import Final

from slicewise.dialects.elastic.pods import (
    ALIAS,
    CURRENT,
    EDITIONS,
    NANO,
    NANO_OLD,
    PERCENT,
    ElasticNames,
)
from slicewise.dialects.shared.dialect import AgentPart, HostLinks
from slicewise.dialects.shared.injection import (
    CONTROLS,
    TOOLS,
    VISIBLE,
    ContainerGpus,
    DeviceNode,
    Injection,
    Link,
    gpu_nodes,
)
from slicewise.dialects.shared.limits import find_edition
from slicewise.dialects.shared.offers import OfferedEdition, OfferedResource, percents, units

_GPU_LINK: Final = "elastic-gpu-"
_CONTROL_LINK: Final = "elastic-gpuctl-"


def offer(
    name: str, names: ElasticNames, socket: str, prefix: str, *, by_default: bool = False
) -> OfferedEdition:
    """The resources of one generation."""
    # The hash in the links' names knows no resource, so no two resources may share an id.
    if names.memory is None:
        core = OfferedResource(names.core, f"{socket}.sock", percents, prefix=prefix, by_gpu=True)
        return OfferedEdition(name, (core,), by_default=by_default)
    return OfferedEdition(
        name,
        (
            OfferedResource(
                names.core, f"{socket}-core.sock", percents, prefix=prefix, by_gpu=True
            ),
            OfferedResource(names.memory, f"{socket}-mem.sock", units(1), prefix=f"{prefix}m"),
        ),
        by_default=by_default,
    )


def hash_ids(ids: Iterable[str]) -> str:
    """elastic-gpu's name for a set of units: eight digits that its host links carry."""
    return hashlib.sha256(":".join(sorted(ids)).encode()).hexdigest()[:8]


def inject(held: ContainerGpus) -> Injection:
    """The GPUs, and the host links by which an installed hook of elastic-gpu finds them."""
    names = find_edition(held.pod, EDITIONS)
    digest = hash_ids(held.ids)
    env = {"GPU": digest, VISIBLE: "none"}
    many = names.memory is not None
    if not many:
        env["ku"] = str(len(held.ids))
    links: list[Link] = []
    devices = list(gpu_nodes(held))
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
        devices += [DeviceNode(name, f"/host/dev/{name}") for name in (*CONTROLS, TOOLS)]
    return Injection(env=env, devices=tuple(devices), links=tuple(links))


AGENT: Final = AgentPart(
    editions=(
        offer("elastic", CURRENT, "elastic-gpushare", "", by_default=True),
        offer("elastic-com", ALIAS, "elastic-com", "com-"),
        offer("elastic-percent", PERCENT, "elastic-gpu", "nano-", by_default=True),
        offer("nano", NANO_OLD, "nano-gpu", "old-"),
        offer("nano-percent", NANO, "nano-gpu-percent", "percent-"),
    ),
    inject=inject,
    links=HostLinks(prefixes=(_GPU_LINK, _CONTROL_LINK), digest=hash_ids),
)
