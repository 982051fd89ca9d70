"""Which nodes a scheduler would ask an extender about, and why it leaves out the others."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from slicewise.cli.connecting import Trouble
from slicewise.kube.affinity import read_wants, turn_away
from slicewise.kube.machines import Machine

LeftOut = list[dict[str, str]]


def choose_nodes(
    spec: Mapping[str, Any], machines: Sequence[Machine], *, placed: bool = False
) -> tuple[list[str], LeftOut]:
    """The nodes left by a pod's spec, and the others with their reasons.

    A pod that is placed has its node in the spec by the scheduler's hand, which demands nothing.
    """
    try:
        wants = read_wants({**spec, "nodeName": None} if placed else spec)
    except msgspec.ValidationError as error:
        raise Trouble(f"pod spec: {error}") from error
    reasons = {machine.name: turn_away(wants, machine) for machine in machines}
    names = [name for name, why in reasons.items() if why is None]
    return names, [{"node": name, "why": why} for name, why in reasons.items() if why]
