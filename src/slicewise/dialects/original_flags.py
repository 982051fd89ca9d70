"""Flags of the original programs that ours take and do nothing for, each with the reason.

Manifests that name them stay as they are; the program says once which of them change nothing.
Flags that do mean something here are options of the commands themselves.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class IgnoredFlag:
    """One flag without effect."""

    name: str
    """As the original spells it, with two dashes."""
    why: str
    """What takes its place, after the words `has no effect`."""
    switch: bool = False
    """Whether it may stand alone."""


_LOGS: Final = "logs are JSON lines on standard output"
_PODS: Final = "pods come from a watch, and who holds which device from the kubelet's socket"
_LOAD: Final = "load is measured by the agents of the nodes"

KLOG: Final = (
    *(
        IgnoredFlag(f"--{name}", _LOGS, switch=True)
        for name in (
            "logtostderr",
            "alsologtostderr",
            "add-dir-header",
            "one-output",
            "skip-headers",
            "skip-log-headers",
        )
    ),
    *(
        IgnoredFlag(f"--{name}", _LOGS)
        for name in (
            "log-backtrace-at",
            "log-dir",
            "log-file",
            "log-file-max-size",
            "log-flush-frequency",
            "stderrthreshold",
            "vmodule",
        )
    ),
)
"""What klog and glog take beside -v."""

EXTENDER: Final = (
    IgnoredFlag("--pprofAddress", "there is no Go profile to serve"),
    IgnoredFlag("--nodeCacheCapable", "each request shows whether it brings Nodes or names", True),
    IgnoredFlag("--enableComputeCapability", "the original never read it", True),
    IgnoredFlag("--incluster-mode", "the pod's own credentials are found without it", True),
    IgnoredFlag("--isLoadSchedule", _LOAD, True),
    IgnoredFlag("--prometheusUrl", _LOAD),
    IgnoredFlag("--policyConfigPath", _LOAD),
    IgnoredFlag("--instancePort", _LOAD),
    IgnoredFlag("--sync-period", _LOAD),
)
"""gpu-admission's, its fork's, and elastic-gpu-scheduler's with its prototype of load."""

AGENT: Final = (
    IgnoredFlag("--health-check", "GPUs are always watched for XIDs", True),
    IgnoredFlag("--mps", "the original never read it", True),
    *(
        IgnoredFlag(name, _PODS, switch=name == "--query-kubelet")
        for name in (
            "--query-kubelet",
            "--kubelet-address",
            "--kubelet-port",
            "--client-cert",
            "--client-key",
            "--token",
            "--timeout",
        )
    ),
    IgnoredFlag("--driver", "GPUs are read from NVML; --nvml names another source"),
    IgnoredFlag("--share-mode", "shares and whole GPUs are always served", True),
    IgnoredFlag("--checkpoint-path", "what must survive a restart is in --state"),
    IgnoredFlag("--node-labels", "the labels of GPU models are always published"),
    IgnoredFlag("--runtime-request-timeout", "calls of the runtime have times of their own"),
    IgnoredFlag("--wait-timeout", "each resource registers by itself, and again when it must"),
    IgnoredFlag("--dbFile", "who holds which device is read from the kubelet"),
    IgnoredFlag("--gpuPluginName", "--dialects names what the node offers"),
    IgnoredFlag("--interval-wait-service", "reports are sent again until the server answers"),
    IgnoredFlag("--interval", "--sample-seconds says how often usage is read"),
    IgnoredFlag("--labels", "usage is published for every system's resources"),
    IgnoredFlag("--listen-address", "metrics are served at --address"),
)
"""gpushare-device-plugin's, gpu-manager's, elastic-gpu-agent's with its exporter's, and
gpuserver-ds's."""

PARALLELISM: Final = IgnoredFlag(
    "--scheduler.parallelism", "one pass over arrays looks at every node"
)
"""gpuserver's, which its own file names as well."""
