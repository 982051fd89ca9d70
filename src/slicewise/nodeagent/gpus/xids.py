"""What NVIDIA's XID numbers mean for a GPU: most are a program's fault, some are its own.

The facts are those of NVIDIA's XID catalog. A number that is not listed counts as critical,
for a GPU out of service without need costs less than a pod on a broken one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Severity(Enum):
    """What an XID says of the GPU it came from."""

    PROGRAM = "program"
    """A program failed; the GPU is as healthy as before."""
    NOTICE = "notice"
    """Something happened to the GPU that it has dealt with."""
    CRITICAL = "critical"
    """The GPU cannot be trusted with pods."""


@dataclass(frozen=True, slots=True)
class XidMeaning:
    severity: Severity
    words: str


def explain(xid: int) -> XidMeaning:
    """What this XID stands for; critical when it is unknown."""
    return _MEANINGS.get(xid, XidMeaning(Severity.CRITICAL, "of unknown meaning"))


_PROGRAM, _NOTICE, _CRITICAL = Severity.PROGRAM, Severity.NOTICE, Severity.CRITICAL
_ROWS: Final[tuple[tuple[Severity, Iterable[int], str], ...]] = (
    (_PROGRAM, (8,), "a channel stopped making progress"),
    (_PROGRAM, (11, 32, 80), "corrupted commands from a program"),
    (_PROGRAM, (13, 69), "a program's exception in the graphics engine"),
    (_PROGRAM, (31,), "a program's access to memory it does not have"),
    (
        _PROGRAM,
        (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)),
        "a program's exception in a copy engine",
    ),
    (_PROGRAM, (43,), "a program's channel was reset"),
    (_PROGRAM, (45,), "channels were removed after an earlier error"),
    (
        _PROGRAM,
        (65, 68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139, 142),
        "a program's exception in a video engine",
    ),
    (_PROGRAM, (109,), "a program was not switched out in time"),
    (_NOTICE, (63,), "memory rows will be replaced at the next reset"),
    (_NOTICE, (66, 67), "a violation that the GPU has dealt with"),
    (_NOTICE, (92,), "many single-bit memory errors, all corrected"),
    (_NOTICE, (93,), "the GPU's own record is nearly worn out"),
    (_NOTICE, (94,), "a memory error that was contained to one program"),
    (_NOTICE, (106, 107), "a test message"),
    (_NOTICE, (108, 121, 137, 141, 147, 148), "a passing error of a link"),
    # The action itself is asked of the driver for as long as it is due.
    (_NOTICE, (154,), "what the GPU needs has changed"),
    (_NOTICE, (157, 160, 161), "a part of the GPU was retired"),
    (_NOTICE, range(162, 166), "a change of its power smoothing"),
    (_CRITICAL, (46,), "the GPU stopped processing"),
    (_CRITICAL, (48,), "a double-bit memory error"),
    (_CRITICAL, (54,), "no auxiliary power"),
    (_CRITICAL, (61, 62), "its power controller halted"),
    (_CRITICAL, (64,), "memory rows could not be replaced"),
    (_CRITICAL, (74, 136, *range(144, 147), 149, 150, 155), "a broken NVLink"),
    (_CRITICAL, (79,), "it has fallen off the bus"),
    (_CRITICAL, (95,), "a memory error that may have reached every program"),
    (_CRITICAL, (110, 169), "a fault of its security processor"),
    (_CRITICAL, (119, 120), "its system processor does not answer"),
    (_CRITICAL, (140, 171, 172), "an uncorrectable memory error"),
    (_CRITICAL, (143,), "it could not be started"),
    (_CRITICAL, (156,), "a part of it must be retired by a reset"),
    (_CRITICAL, (158, 167), "a fatal timeout"),
)
_MEANINGS: Final = {
    xid: XidMeaning(severity, words) for severity, xids, words in _ROWS for xid in xids
}
