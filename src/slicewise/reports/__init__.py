"""Edge: what agents report of their nodes, over one long connection each, and who reads it.

`NodeReport` is the only document of what is in use. An agent makes a `Reporter` and hands it a
report whenever something changed; the server makes a `ReportReceiver` per connection and is told
of it through a `ReportSink`. `listing` is what readers of all reports get.
"""

from slicewise.reports.credentials import Credentials, FileCredentials, trust
from slicewise.reports.messages import (
    PATH,
    PROTOCOL,
    ReportDelta,
    ReportError,
    apply_delta,
    find_delta,
)
from slicewise.reports.receiver import ReportReceiver, ReportSink
from slicewise.reports.replicas import ReplicaReporters, read_endpoint
from slicewise.reports.report import (
    ContainerReport,
    DeviceReport,
    GpuReport,
    MeasuredUse,
    NodeReport,
    PodReport,
    ProcessReport,
    name_brand,
    number_brand,
)
from slicewise.reports.reporter import Endpoint, Reporter, ReportTiming

__all__ = [
    "PATH", "PROTOCOL", "ContainerReport", "Credentials", "DeviceReport", "Endpoint",
    "FileCredentials", "GpuReport", "MeasuredUse", "NodeReport", "PodReport", "ProcessReport",
    "ReplicaReporters", "ReportDelta", "ReportError", "ReportReceiver", "ReportSink",
    "ReportTiming", "Reporter", "apply_delta", "find_delta", "name_brand", "number_brand",
    "read_endpoint", "trust",
]  # fmt: skip
