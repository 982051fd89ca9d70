"""tkestack: vcuda-core and vcuda-memory of gpu-manager, and of its fork."""

from typing import Final

from slicewise.dialects.shared.dialect import Dialect
from slicewise.dialects.tkestack.agent import AGENT
from slicewise.dialects.tkestack.node import NODE
from slicewise.dialects.tkestack.pods import PODS
from slicewise.dialects.tkestack.scheduler import SCHEDULER

TKESTACK: Final = Dialect(
    name="tkestack",
    keys=(
        "nvidia.com/",
        "tencent.com/",
        "tydic.io/",
        "gaia.nvidia.com/",
        "gaia.tencent.com/",
        "tkestack.io/",
    ),
    pods=PODS,
    node=NODE,
    agent=AGENT,
    scheduler=SCHEDULER,
)
