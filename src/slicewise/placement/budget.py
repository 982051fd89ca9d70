"""Steps: how much work one decision may take, whatever a pod asks.

A step is one try to put a share on a GPU. They are counted, not timed, so that a decision is the
same on every machine.
"""

from typing import Final

# About five milliseconds in all, and less than one millisecond for the first look at a node.
STEPS: Final = 1024
FIRST_LOOK: Final = 64
# Looking for victims, or for the smallest change, tries many nodes one by one.
PREEMPT_STEPS: Final = 6 * STEPS
EXPLAIN_STEPS: Final = 2 * STEPS
NODE_STEPS: Final = STEPS // 2
# Choosing GPUs for a pod that others bound happens between decisions.
ADOPT_STEPS: Final = 256


class StepBudget:
    """The steps of one decision, shared by all nodes it looks at."""

    __slots__ = ("ended", "left")

    def __init__(self, steps: int = STEPS) -> None:
        self.left = steps
        self.ended = False
        """Whether something was left undecided because the steps had ended."""

    def take(self, steps: int = 1) -> bool:
        """Take so many steps; false when they have ended."""
        if steps > self.left:
            self.left, self.ended = 0, True
            return False
        self.left -= steps
        return True

    def split(self, most: int) -> "StepBudget":
        """At most so many of the steps that are left; `settle` gives back what is not used."""
        part = StepBudget(min(most, self.left))
        self.left -= part.left
        return part

    def settle(self, part: "StepBudget") -> None:
        """Take back the steps that a part did not use."""
        self.left += part.left
