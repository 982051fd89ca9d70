"""How a control plane or a real node differs from a plain one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slicewise_testbed.runtimes import WITH_CDI, Runtime


@dataclass(frozen=True, slots=True)
class Settings:
    """What a test asks of its control plane."""

    # Fields of a KubeSchedulerConfiguration, such as profiles and extenders.
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    # Audit level for every request, such as Metadata; None keeps no audit log.
    audit: str | None = None
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    # Dial EndpointSlice addresses of aggregated APIs; off, an ExternalName service may name
    # localhost, which is how a server in the test process is reached.
    aggregator_routing: bool = False
    apiserver_flags: Sequence[str] = ()
    controller_manager_flags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a test asks of its real nodes."""

    runtime: Runtime = WITH_CDI
    labels: Mapping[str, str] = field(default_factory=dict)
    # Fields of a KubeletConfiguration, such as maxPods.
    kubelet: Mapping[str, Any] = field(default_factory=dict)
