"""A smaller request in the words of the pod's own system, so that a person can write it down."""

from collections.abc import Callable, Mapping
from typing import Final

from slicewise.dialects import DEFAULT, ELASTIC, GPUSCHEDULER, GPUSHARE, SLICEWISE, TKESTACK
from slicewise.dialects.gpuscheduler import GPU as NVIDIA_GPU
from slicewise.dialects.gpushare import read_span
from slicewise.dialects.shared.limits import find_edition
from slicewise.dialects.slicewise import CORES, GPU, MEMORY, SHARES
from slicewise.model import FULL, Pod, SlicewiseError

Limits = dict[str, int]
Speller = Callable[[Pod, str, int], Limits]


def write_smaller_limits(pod: Pod, ask: Mapping[str, int]) -> Limits | None:
    """The limits that ask for this much of each GPU; None where the system cannot say it."""
    try:
        dialect = DEFAULT.claim(pod)
        if dialect is None or len(DEFAULT.read_request(pod).containers) != 1:
            # Of several containers nobody knows which should ask for less.
            return None
        [(what, amount)] = ask.items()
        limits = _SPELLERS[dialect.name](pod, what, amount)
    except SlicewiseError:
        return None
    return limits if limits and all(limits.values()) else None


def _spell_own(pod: Pod, what: str, amount: int) -> Limits:
    if any(key.startswith(SHARES) for key in pod.annotations):
        return {}
    return {{"memory": MEMORY, "cores": CORES, "gpus": GPU}[what]: amount}


def _spell_gpushare(pod: Pod, what: str, amount: int) -> Limits:
    names, count = GPUSHARE.names, read_span(pod, GPUSHARE.names)
    if what == "memory":
        return {names.memory: amount // names.memory_unit * count}
    if what == "gpus":
        [container] = GPUSHARE.read_request(pod).containers
        each = container.shares[0].memory // names.memory_unit
        return {names.memory: each * amount, names.count: amount}
    return {}


def _spell_tkestack(pod: Pod, what: str, amount: int) -> Limits:
    names = find_edition(pod, TKESTACK.editions)
    if what == "memory":
        return {names.memory: amount // names.memory_unit}
    return {names.core: amount * (FULL if what == "gpus" else 1)}


def _spell_elastic(pod: Pod, what: str, amount: int) -> Limits:
    names = find_edition(pod, ELASTIC.editions)
    if what == "memory":
        return {} if names.memory is None else {names.memory: amount}
    return {names.core: amount * (FULL if what == "gpus" else 1)}


def _spell_nvidia(pod: Pod, what: str, amount: int) -> Limits:  # noqa: ARG001
    return {NVIDIA_GPU: amount} if what == "gpus" else {}


_SPELLERS: Final[Mapping[str, Speller]] = {
    SLICEWISE.name: _spell_own,
    GPUSHARE.name: _spell_gpushare,
    TKESTACK.name: _spell_tkestack,
    ELASTIC.name: _spell_elastic,
    GPUSCHEDULER.name: _spell_nvidia,
}
