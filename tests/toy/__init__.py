"""A made-up system, as a dialect of one package: quarters of a GPU, called slices.

It is registered in one line of `test_toy_dialect.py` and known nowhere else.
"""

from slicewise.dialects import Dialect
from toy.agent import AGENT
from toy.node import NODE
from toy.pods import PODS
from toy.scheduler import SCHEDULER

TOY = Dialect(
    name="toy",
    keys=("toy.example.com/",),
    pods=PODS,
    node=NODE,
    agent=AGENT,
    scheduler=SCHEDULER,
)
