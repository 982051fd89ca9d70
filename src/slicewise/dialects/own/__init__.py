"""Slicewise's own dialect, which can say everything the model can."""

from typing import Final

from slicewise.dialects.own.agent import AGENT
from slicewise.dialects.own.node import NODE
from slicewise.dialects.own.pods import PODS
from slicewise.dialects.own.scheduler import SCHEDULER
from slicewise.dialects.shared.dialect import Dialect

SLICEWISE: Final = Dialect(
    name="slicewise",
    keys=("slicewise.io/",),
    pods=PODS,
    node=NODE,
    agent=AGENT,
    scheduler=SCHEDULER,
)
