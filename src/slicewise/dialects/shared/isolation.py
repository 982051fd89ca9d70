"""Isolation in annotations and labels: what pods and namespaces name, and what GPUs offer.

`hook`, `mps`, `driver` and `none` are the tiers; `memory=driver,compute=hook` names each apart.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from slicewise.dialects.shared.texts import annotation, label, read_number, refuse
from slicewise.model import (
    COMPUTE_TIERS,
    FULL,
    MEMORY_TIERS,
    NO_WISH,
    NOT_ISOLATED,
    UNLIMITED_USE,
    Allocation,
    DialectError,
    Isolation,
    IsolationRules,
    IsolationTier,
    IsolationWish,
    Node,
    OfferedIsolation,
    Percent,
    Request,
    promise,
)

ISOLATION: Final = "slicewise.io/isolation"
CEILING: Final = "slicewise.io/ceiling"
FLOOR: Final = "slicewise.io/isolation-floor"
ALLOW_UNLIMITED: Final = "slicewise.io/allow-unlimited"
MEMORY_LABEL: Final = "slicewise.io/isolation-memory"
COMPUTE_LABEL: Final = "slicewise.io/isolation-compute"
UNTESTED: Final = "driver-untested"

_MEMORY: Final = {tier.word: tier for tier in MEMORY_TIERS}
_COMPUTE: Final = {tier.word: tier for tier in COMPUTE_TIERS}
_FORM: Final = "none, hook, mps, driver, or both apart like 'memory=driver,compute=hook'"
_CEILING_FORM: Final = "a percentage of the GPU's compute like '60'"


def read_wish(field: str, text: str) -> IsolationWish:
    """What these words ask for: one tier for all, or one for each resource.

    One tier alone is that of memory; compute is then limited by whatever limits it there.
    """
    word = text.strip()
    if word in _MEMORY:
        memory = _MEMORY[word]
        return IsolationWish(memory, min(memory, IsolationTier.HOOK))
    named: dict[str, IsolationTier] = {}
    for entry in word.split(","):
        resource, equals, value = (part.strip() for part in entry.partition("="))
        known = {"memory": _MEMORY, "compute": _COMPUTE}.get(resource, {})
        if not equals or value not in known or resource in named:
            raise refuse(field, text, _FORM)
        named[resource] = known[value]
    return IsolationWish(named.get("memory"), named.get("compute"))


def read_pod_wish(annotations: Mapping[str, str]) -> IsolationWish:
    """What the pod names, in whichever system it asks for its GPUs."""
    text = annotations.get(ISOLATION)
    return NO_WISH if text is None else read_wish(annotation(ISOLATION), text)


def read_pod_ceiling(annotations: Mapping[str, str]) -> Percent | None:
    """How much compute the pod's containers may borrow up to; None for a hard limit."""
    text = annotations.get(CEILING)
    if text is None:
        return None
    percent = read_number(annotation(CEILING), text, _CEILING_FORM)
    if not 0 < percent <= FULL:
        raise refuse(annotation(CEILING), text, _CEILING_FORM)
    return Percent(percent)


def read_rules(labels: Mapping[str, str]) -> IsolationRules:
    """What a namespace's labels demand; words that cannot be read allow no share at all."""
    # A label's value has neither commas nor equals signs, so that both are written by one word.
    text = labels.get(FLOOR)
    try:
        floor = UNLIMITED_USE if text is None else read_wish(label(FLOOR), _spell(text)).least
    except DialectError as error:
        return IsolationRules(unreadable=str(error))
    return IsolationRules(floor, labels.get(ALLOW_UNLIMITED) == "true")


def _spell(text: str) -> str:
    """The label's value as an annotation writes it: `memory.driver_compute.hook`."""
    return text.replace("_", ",").replace(".", "=")


def write_offered(offered: OfferedIsolation) -> dict[str, object] | None:
    """A GPU's tiers as its node publishes them; None where there is nothing to say."""
    memory = [tier.word for tier in offered.memory]
    if offered.driver_untested:
        memory.append(UNTESTED)
    compute = [tier.word for tier in offered.compute]
    if not (memory or compute or offered.why):
        return None
    none = [IsolationTier.NONE.word]
    told: dict[str, object] = {"memory": memory or none, "compute": compute or none}
    told |= {"by": offered.by} if offered.by else {}
    return told | ({"why": offered.why} if offered.why else {})


def read_offered(field: str, entry: object) -> OfferedIsolation:
    """The tiers that a node publishes of a GPU; words that newer agents add offer nothing here."""
    if entry is None:
        return NOT_ISOLATED
    if not isinstance(entry, dict):
        raise refuse(field, entry, "memory and compute")
    words = {}
    for resource in ("memory", "compute"):
        listed = entry.get(resource, [])
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise refuse(f"{field}.{resource}", listed, "a list of tiers")
        words[resource] = listed
    by, why = entry.get("by", ""), entry.get("why", "")
    return OfferedIsolation(
        _keep_tiers(words["memory"], _MEMORY),
        _keep_tiers(words["compute"], _COMPUTE),
        UNTESTED in words["memory"],
        by if isinstance(by, str) else "",
        why if isinstance(why, str) else "",
    )


def _keep_tiers(words: list[str], known: Mapping[str, IsolationTier]) -> tuple[IsolationTier, ...]:
    tiers = {known[word] for word in words if word in known}
    return tuple(sorted(tiers - {IsolationTier.NONE}))


def write_labels(node: Node) -> dict[str, str]:
    """The best that every GPU of the node offers, as labels; none where some offer nothing."""
    best = [gpu.isolation.best for gpu in node.gpus]
    memory = min((each.memory for each in best), default=IsolationTier.NONE)
    compute = min((each.compute for each in best), default=IsolationTier.NONE)
    if not memory and not compute:
        return {}
    return {MEMORY_LABEL: memory.word, COMPUTE_LABEL: compute.word}


def write_terms(allocation: Allocation) -> dict[str, object]:
    """What a record says of its containers beside their slices; nothing where nothing holds."""
    promised = {
        each.name: [each.isolation.memory.word, each.isolation.compute.word]
        for each in allocation.containers
        if each.isolation
    }
    ceilings = {
        each.name: int(each.ceiling) for each in allocation.containers if each.ceiling is not None
    }
    return ({"isolation": promised} if promised else {}) | (
        {"ceilings": ceilings} if ceilings else {}
    )


def read_terms(
    field: str, document: Mapping[str, object], name: str
) -> tuple[Isolation | None, Percent | None]:
    """The isolation and the ceiling that a record gives to one container."""
    promised = _entry(field, document, "isolation", name)
    isolation = None
    match promised:
        case None:
            pass
        case [str(memory), str(compute)] if memory in _MEMORY and compute in _COMPUTE:
            isolation = Isolation(_MEMORY[memory], _COMPUTE[compute])
        case _:
            raise refuse(field, promised, "a tier for memory and one for compute")
    ceiling = _entry(field, document, "ceilings", name)
    match ceiling:
        case None:
            return isolation, None
        case int(percent) if not isinstance(percent, bool) and 0 < percent <= FULL:
            return isolation, Percent(percent)
    raise refuse(field, ceiling, _CEILING_FORM)


def show_promises(record: str) -> str:
    """What a record promises its containers, as tables show it; empty where that is nothing."""
    if '"isolation"' not in record:
        return ""
    try:
        document = json.loads(record)
        found = {str(read_terms("record", document, name)[0]) for name in document["isolation"]}
    except (ValueError, TypeError, KeyError, AttributeError, DialectError):
        return ""
    return ", ".join(sorted(found))


def _entry(field: str, document: Mapping[str, object], key: str, name: str) -> object:
    part = document.get(key, {})
    if not isinstance(part, dict):
        raise refuse(field, part, f"{key} by container")
    return part.get(name)


def add_terms(
    request: Request, allocation: Allocation, node: Node, rules: IsolationRules, usual: Isolation
) -> Allocation:
    """The allocation with what each container is promised on the GPUs that it was given."""
    containers = []
    for each in allocation.containers:
        held = [
            (piece.cores, NOT_ISOLATED if at is None else node.gpus[at].isolation)
            for piece in each.slices
            for at in (node.position(piece.gpu),)
        ]
        promised = promise(held, wish=request.isolation, rules=rules, usual=usual)
        limited = promised is not None and promised.compute is not IsolationTier.NONE
        borrowed = request.ceiling if limited else None
        containers.append(replace(each, isolation=promised, ceiling=borrowed))
    return replace(allocation, containers=tuple(containers))
