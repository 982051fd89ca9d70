"""Edge: what agents tell the server over one long connection each, and how both ends speak.

An agent makes a `Reporter` and hands it a `NodeReport` whenever something changed; the server
makes a `Receiver` per connection and is told of it through a `Sink`.
"""

from slicewise.reports.credentials import Credentials, FileCredentials, trust
from slicewise.reports.messages import (
    PATH,
    PROTOCOL,
    Change,
    ReportError,
    apply_change,
    find_change,
)
from slicewise.reports.receiver import Receiver, Sink
from slicewise.reports.report import (
    ContainerReport,
    DeviceReport,
    GpuReport,
    NodeReport,
    PodReport,
    Use,
    name_brand,
    number_brand,
)
from slicewise.reports.sender import Reporter, Timing

__all__ = [
    "PATH",
    "PROTOCOL",
    "Change",
    "ContainerReport",
    "Credentials",
    "DeviceReport",
    "FileCredentials",
    "GpuReport",
    "NodeReport",
    "PodReport",
    "Receiver",
    "ReportError",
    "Reporter",
    "Sink",
    "Timing",
    "Use",
    "apply_change",
    "find_change",
    "name_brand",
    "number_brand",
    "trust",
]
