"""Slicewise's own dialect, which can say everything the model can.

Limits count GPUs, percent of each and MiB of each; annotations say what limits cannot.
"""

import re
from functools import partial
from typing import Final

from slicewise.dialects.shared import limits
from slicewise.dialects.shared.dialect import Limits
from slicewise.dialects.shared.records import RecordedPods
from slicewise.dialects.shared.texts import annotation, read_models, read_words, refuse
from slicewise.model import (
    FULL,
    MAX_GPUS_PER_NODE,
    WHOLE_GPU,
    Constraints,
    Container,
    DialectError,
    MiB,
    Nearness,
    Percent,
    Pod,
    Request,
    Share,
    TopologyConstraint,
    count,
)

GPU: Final = "slicewise.io/gpu"
CORES: Final = "slicewise.io/cores"
MEMORY: Final = "slicewise.io/memory"
SHARES: Final = "slicewise.io/shares."
MODELS: Final = "slicewise.io/models"
MODELS_REFUSED: Final = "slicewise.io/models-refused"
UUIDS: Final = "slicewise.io/uuids"
UUIDS_REFUSED: Final = "slicewise.io/uuids-refused"
TOPOLOGY: Final = "slicewise.io/topology"
TOGETHER: Final = "slicewise.io/together"
POLICY: Final = "slicewise.io/policy"
REQUEUED: Final = "slicewise.io/quota-changed"
FREED: Final = "slicewise.io/room-freed"
KEPT: Final = "slicewise.io/room-kept"

_SHARE: Final = re.compile(r"([0-9]{1,3})%(?::([0-9]{1,13}))?")
_SHARES_FORM: Final = "shares like 'whole,30%:4096,0%:2048'"
_WISHES: Final = {
    prefix + nearness.name.lower(): TopologyConstraint(nearness, strict)
    for nearness in Nearness
    for prefix, strict in (("", False), ("preferred:", False), ("required:", True))
}
_WISH_FORM: Final = "nvlink, pcie or numa, optionally after 'required:' or 'preferred:'"
_TRUTHS: Final = {"true": True, "false": False}


def read_shares(container: Container, pod: Pod) -> tuple[Share, ...]:
    """What one container asks for; empty when it asks for no GPU."""
    cores, memory = limits.read_amount(container, CORES), limits.read_amount(container, MEMORY)
    if GPU in container.limits or GPU in container.requests:
        asked = limits.read_amount(container, GPU)
        gpus = limits.check_count(f"{GPU}={asked}", asked)
    else:
        gpus = 1 if cores or memory else 0
    if gpus == 0 and (cores or memory):
        raise DialectError(f"{GPU}=0: expected at least 1 beside {CORES if cores else MEMORY}")
    listed = pod.annotations.get(SHARES + container.name)
    if listed is not None:
        return _read_listed(container, listed, gpus, equal=bool(cores or memory))
    if cores > FULL:
        raise DialectError(f"{CORES}={cores}: expected at most 100, of each of {GPU}")
    if cores == FULL or not (cores or memory):
        return (WHOLE_GPU,) * gpus
    return (Share(Percent(cores), limits.read_memory(MEMORY, memory, MiB(1))),) * gpus


def read_constraints(pod: Pod) -> Constraints:
    """Everything the pod's annotations demand of its GPUs."""
    given = pod.annotations
    policy = given.get(POLICY)
    if policy is not None and not policy.strip():
        raise refuse(annotation(POLICY), policy, "the name of a policy")
    return Constraints(
        models=read_models(annotation(MODELS), given.get(MODELS, "")),
        models_refused=read_models(annotation(MODELS_REFUSED), given.get(MODELS_REFUSED, "")),
        uuids=read_words(given.get(UUIDS, ""), annotation(UUIDS)),
        uuids_refused=read_words(given.get(UUIDS_REFUSED, ""), annotation(UUIDS_REFUSED)),
        topology=_read_topology(given.get(TOPOLOGY)),
        together=_read_truth(TOGETHER, given.get(TOGETHER, "false")),
        policy=None if policy is None else policy.strip(),
    )


class OwnPods(RecordedPods):
    """Reads and writes pods in our own words; the full record is all there is."""

    resources = frozenset((GPU, CORES, MEMORY))
    # Beside this one alone, annotations list the shares.
    divisible = frozenset((GPU,))
    # The last one is reserved for agents, which ask by it that a pod be looked at again.
    marks = (REQUEUED, FREED, KEPT, "slicewise.io/nudged")
    amount_rules = (limits.AmountRule(GPU), limits.AmountRule(CORES, FULL, FULL))
    keys = (MODELS, MODELS_REFUSED, UUIDS, UUIDS_REFUSED, TOPOLOGY, TOGETHER, POLICY, KEPT)
    key_prefixes = (SHARES,)

    def claims(self, pod: Pod) -> str | None:
        return limits.first_asked(pod, (GPU, CORES, MEMORY))

    def read_request(self, pod: Pod) -> Request:
        containers = limits.read_containers(pod, partial(read_shares, pod=pod))
        wanting = {SHARES + each.name for each in containers}
        for key in pod.annotations:
            # Left unread, a misspelt container name would turn shares into whole GPUs.
            if key.startswith(SHARES) and key not in wanting:
                expected = "the name of a container that asks for GPUs"
                raise refuse(annotation(key), pod.annotations[key], expected)
        return Request(containers, read_constraints(pod))

    def most_shares(self, container: Container) -> tuple[tuple[Share, ...], ...]:
        gpus, cores, memory = (limits.most_amount(container, key) for key in (GPU, CORES, MEMORY))
        each = limits.most_shares(min(cores, FULL), memory) or (WHOLE_GPU,)
        count = max(gpus, 1 if cores or memory else 0)
        return (each * min(count, MAX_GPUS_PER_NODE),) if count else ()

    def write_limits(self, pod: Pod, what: str, amount: int) -> Limits:
        """The limit of this kind; nothing where an annotation lists unequal shares."""
        if any(key.startswith(SHARES) for key in pod.annotations):
            return {}
        return {{"memory": MEMORY, "cores": CORES, "gpus": GPU}[what]: amount}


PODS: Final = OwnPods()


def _read_listed(container: Container, text: str, wanted: int, *, equal: bool) -> tuple[Share, ...]:
    field = annotation(SHARES + container.name)
    if equal:
        raise refuse(field, text, f"no {CORES} or {MEMORY} beside it")
    entries = text.split(",")
    if len(entries) != wanted:
        raise refuse(field, text, f"{count(wanted, 'share')}, as many as {GPU}")
    return tuple(_read_share(field, text, entry.strip()) for entry in entries)


def _read_share(field: str, text: str, entry: str) -> Share:
    if entry == "whole":
        return WHOLE_GPU
    form = _SHARE.fullmatch(entry)
    if form is None:
        raise refuse(field, text, _SHARES_FORM)
    cores, memory = int(form[1]), int(form[2] or 0)
    if cores == FULL:
        return WHOLE_GPU
    try:
        return Share(Percent(cores), MiB(memory))
    except DialectError as error:
        raise DialectError(f"{field}: {error}") from error


def _read_topology(text: str | None) -> TopologyConstraint | None:
    if text is None:
        return None
    if text not in _WISHES:
        raise refuse(annotation(TOPOLOGY), text, _WISH_FORM)
    return _WISHES[text]


def _read_truth(key: str, text: str) -> bool:
    if text not in _TRUTHS:
        raise refuse(annotation(key), text, "true or false")
    return _TRUTHS[text]
