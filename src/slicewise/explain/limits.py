"""A smaller request in the words of the pod's own system, so that a person can write it down."""

from collections.abc import Mapping

from slicewise.dialects import DEFAULT, Dialects
from slicewise.model import Pod, SlicewiseError


def write_smaller_limits(
    pod: Pod, ask: Mapping[str, int], dialects: Dialects = DEFAULT
) -> Mapping[str, int] | None:
    """The limits that ask for this much of each GPU; None where the system cannot say it."""
    try:
        dialect = dialects.claim(pod)
        if dialect is None or len(dialects.read_request(pod).containers) != 1:
            # Of several containers nobody knows which should ask for less.
            return None
        [(what, amount)] = ask.items()
        limits = dialect.pods.write_limits(pod, what, amount)
    except SlicewiseError:
        return None
    return limits if limits and all(limits.values()) else None
