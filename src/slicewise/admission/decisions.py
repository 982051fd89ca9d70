"""The policies' decisions as functions of data, for clusters that evaluate no policies.

Each short name of a policy has one function here that says what its expressions say, word for word;
the tests hold the two together on a real API server.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from slicewise.admission import expressions as cel
from slicewise.admission.policies import (
    DRIVER,
    MIRROR,
    NAMED_AFTER_NODES,
    NODE_NAME,
    NODE_NAME_WORDS,
    NODELESS_WORDS,
    SLICE_WORDS,
    VISIBLE_DEVICES_WORDS,
    PolicySettings,
)
from slicewise.admission.review import Amounts, Patch, Question, Reviewed
from slicewise.dialects import DEFAULT, Dialects
from slicewise.dialects.scheduler_config import DEFAULT_NAME
from slicewise.dialects.shared.limits import CARRIER, AmountRule
from slicewise.model import find_count

FORBIDDEN: Final = (403, "Forbidden")
INVALID: Final = (422, "Invalid")


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a policy makes of a request: changes to it, or words against it."""

    words: str = ""
    """Why it is refused; empty where it is not."""
    status: tuple[int, str] = FORBIDDEN
    """Code and reason of the refusal."""
    patches: tuple[Patch, ...] = ()


PASSED: Final = Judgement()


class AdmissionJudge:
    """Judges requests by what the dialects know, as the policies of the same names do."""

    def __init__(self, settings: PolicySettings, dialects: Dialects = DEFAULT) -> None:
        self._settings = settings
        self._dialects = dialects
        self._marks = re.compile(cel.match_marks(dialects))
        self._domains = re.compile(cel.match_own_domains(dialects))
        self._known = sorted({*dialects.resources, CARRIER})
        self._misspelt: Mapping[str, str] = cel.list_misspellings(dialects)
        self._judges: Mapping[str, Callable[[Question], Judgement]] = {
            "scheduler-name": self._choose_scheduler,
            "carrier": self._add_carrier,
            "marks": self._judge_marks,
            "node-name": self._judge_node_name,
            "requests": self._judge_requests,
            "agents": self._judge_agent,
            "visible-devices": _judge_visible_devices,
        }

    @property
    def names(self) -> Iterable[str]:
        """Every policy that can be judged by."""
        return self._judges.keys()

    def judge(self, short: str, question: Question) -> Judgement:
        """What the policy of this short name makes of the request, whoever is exempt from it."""
        return self._judges[short](question)

    def _asks(self, pod: Reviewed) -> bool:
        return any(not self._dialects.resources.isdisjoint(each.limits) for each in pod.containers)

    def _choose_scheduler(self, question: Question) -> Judgement:
        pod = question.subject
        chosen = self._settings.scheduler
        default = pod.spec.scheduler_name in ("", DEFAULT_NAME)
        if not chosen or not default or pod.spec.node_name or not self._asks(pod):
            return PASSED
        patch = {"op": "add", "path": "/spec/schedulerName", "value": chosen}
        return Judgement(patches=(patch,))

    def _add_carrier(self, question: Question) -> Judgement:
        spec = question.subject.spec
        patches: list[Patch] = []
        for field, listed in (
            ("containers", spec.containers),
            ("initContainers", spec.init_containers),
        ):
            for at, each in enumerate(listed or ()):
                if self._needs_carrier(each.limits):
                    path = f"/spec/{field}/{at}/resources"
                    patches += _carry(f"{path}/limits", each.resources.limits)
                    patches += _carry(f"{path}/requests", each.resources.requests)
        return Judgement(patches=tuple(patches))

    def _needs_carrier(self, limits: Amounts) -> bool:
        asked = limits.keys() & {*self._dialects.resources, CARRIER}
        return bool(asked) and asked <= self._dialects.countable

    def _judge_marks(self, question: Question) -> Judgement:
        words = []
        for field in ("annotations", "labels"):
            now = question.subject.metadata.read(field)
            old = question.old_object
            before = {} if old is None else old.metadata.read(field)
            touched = [key for key, text in now.items() if before.get(key) != text]
            touched += [key for key in before if key not in now]
            forged = [key for key in touched if self._marks.fullmatch(key)]
            if forged:
                words.append(cel.write_mark_words(field) + ", ".join(forged))
        return Judgement("; ".join(words))

    def _judge_node_name(self, question: Question) -> Judgement:
        pod = question.subject
        nodes = "system:nodes" in (question.user_info.groups or ())
        mirror = nodes and MIRROR in pod.metadata.read("annotations")
        named = pod.spec.node_name and self._asks(pod) and not mirror
        return Judgement(NODE_NAME_WORDS if named else "")

    def _judge_requests(self, question: Question) -> Judgement:
        words = [
            f"container {each.name}: {found}"
            for each in question.subject.containers
            for found in (*self._find_unknown(each.limits), *self._find_unserved(each.limits))
        ]
        return Judgement("; ".join(words), INVALID)

    def _find_unknown(self, limits: Amounts) -> Iterator[str]:
        for name in limits:
            unknown = f"{name} is no resource that Slicewise knows: "
            if name in self._misspelt:
                yield f"{unknown}probably {self._misspelt[name]} was meant"
            elif name not in self._known and self._domains.match(name):
                yield f"{unknown}expected one of {', '.join(self._known)}"

    def _find_unserved(self, limits: Amounts) -> Iterator[str]:
        for rule in self._dialects.amount_rules:
            if rule.resource in limits:
                yield from _find_fault(rule, limits)

    def _judge_agent(self, question: Question) -> Judgement:
        who, subject = question.user_info, question.subject
        own = self._settings
        if who.username != f"system:serviceaccount:{own.namespace}:{own.agent_account}":
            return PASSED
        mine = ((who.extra or {}).get(NODE_NAME) or [""])[0]
        if not mine:
            return Judgement(NODELESS_WORDS)
        kind = question.resource.resource
        theirs = subject.spec.custom_node_name if kind == "gpupods" else subject.spec.node_name
        if kind in NAMED_AFTER_NODES:
            theirs = subject.metadata.name
        if mine != theirs:
            return Judgement(
                f"the agent of node {mine} may not write what belongs to node {theirs}"
            )
        slices = kind == "resourceslices" and subject.spec.driver != DRIVER
        return Judgement(SLICE_WORDS if slices else "")


def _carry(path: str, amounts: Amounts | None) -> list[Patch]:
    if amounts is None:
        return [{"op": "add", "path": path, "value": {CARRIER: "1"}}]
    return [{"op": "add", "path": f"{path}/{CARRIER.replace('/', '~1')}", "value": "1"}]


def _find_fault(rule: AmountRule, limits: Amounts) -> Iterator[str]:
    written = limits[rule.resource]
    amount = find_count(written)
    said = f"{rule.resource}={written}: expected "
    if amount is None or amount > rule.most or (amount > rule.full and amount % rule.full):
        yield said + rule.expected
    elif 0 < amount < rule.full and rule.beside is not None and rule.beside not in limits:
        yield f"{said}{rule.beside} beside it"


def _judge_visible_devices(question: Question) -> Judgement:
    found = any(
        variable.name == "NVIDIA_VISIBLE_DEVICES" and variable.value not in ("none", "void")
        for each in question.subject.containers
        for variable in each.env or ()
    )
    return Judgement(VISIBLE_DEVICES_WORDS if found else "")
