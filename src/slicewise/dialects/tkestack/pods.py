"""The tkestack dialect: vcuda-core and vcuda-memory, under two sets of names.

100 vcuda-core is one GPU; less is a share of one GPU and must come with memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from slicewise.dialects.shared import indexes, limits
from slicewise.dialects.shared.dialect import Limits
from slicewise.dialects.shared.records import RecordedPods
from slicewise.dialects.shared.texts import annotation, read_models, read_number, refuse
from slicewise.model import (
    FULL,
    MAX_GPUS_PER_NODE,
    Allocation,
    Constraints,
    Container,
    DialectError,
    MiB,
    Node,
    Percent,
    Pod,
    PodRecord,
    Request,
    Share,
)


@dataclass(frozen=True, slots=True)
class TkestackNames:
    """How one edition spells its names, and how large its memory unit is."""

    core: str
    memory: str
    memory_unit: MiB
    models: str | None = None
    models_refused: str | None = None
    bind_time: str | None = None
    bind_phase: str | None = None

    @property
    def asking(self) -> tuple[str, ...]:
        """The resources that ask for a GPU; memory alone asks for none."""
        return (self.core,)

    def key(self, word: str) -> str:
        """The pod annotation with this word under the edition's prefix."""
        return f"{self.core.partition('/')[0]}/{word}"

    @property
    def pod_keys(self) -> tuple[str, ...]:
        """Every annotation of a pod but those of single containers."""
        words = ("predicate-node", "predicate-time", "gpu-assigned", "vcuda-core-limit")
        others = (self.models, self.models_refused, self.bind_time, self.bind_phase)
        return (*map(self.key, words), *(key for key in others if key is not None))


UPSTREAM: Final = TkestackNames("tencent.com/vcuda-core", "tencent.com/vcuda-memory", MiB(256))
FORK: Final = TkestackNames(
    "nvidia.com/vcuda-core",
    "nvidia.com/vcuda-memory",
    MiB(1),
    models="nvidia.com/use-gputype",
    models_refused="nvidia.com/nouse-gputype",
    bind_time="tydic.io/bind-time",
    bind_phase="tydic.io/bind-phase",
)
EDITIONS: Final = (FORK, UPSTREAM)


def read_shares(amounts: Mapping[str, int], names: TkestackNames) -> tuple[Share, ...]:
    """What one container asks for; empty when it asks for no GPU."""
    core = amounts.get(names.core, 0)
    memory = limits.read_memory(names.memory, amounts.get(names.memory, 0), names.memory_unit)
    if core % FULL == 0:
        return limits.whole_gpus(names.core, core, FULL)
    # The original extender let both of these pass, and the node refused them later.
    if core > FULL:
        raise DialectError(f"{names.core}={core}: expected less than 100 or a multiple of 100")
    if memory == 0:
        raise DialectError(f"{names.core}={core}: expected {names.memory} beside it")
    return (Share(Percent(core), memory),)


def read_ceiling(pod: Pod) -> Percent | None:
    """How much idle compute the pod's containers may borrow; None when the limit is hard."""
    key = limits.find_edition(pod, EDITIONS).key("vcuda-core-limit")
    text = pod.annotations.get(key)
    if text is None:
        return None
    return Percent(min(FULL, read_number(annotation(key), text, "a percentage like '50'")))


class TkestackPods(RecordedPods):
    """Reads and writes pods of gpu-admission and gpu-manager."""

    resources = frozenset(each for names in EDITIONS for each in (names.core, names.memory))
    marks = (
        *(names.key(word) for names in EDITIONS for word in ("predicate-*", "gpu-assigned")),
        "tydic.io/bind-*",
    )
    amount_rules = tuple(
        limits.AmountRule(names.core, FULL, MAX_GPUS_PER_NODE * FULL, beside=names.memory)
        for names in EDITIONS
    )
    # gpu-admission names the node before the pod is bound.
    target_keys = tuple(names.key("predicate-node") for names in EDITIONS)
    keys = tuple(key for names in EDITIONS for key in names.pod_keys)
    key_prefixes = tuple(names.key("predicate-gpu-idx-") for names in EDITIONS)

    def claims(self, pod: Pod) -> str | None:
        return limits.first_asked(pod, (names.core for names in EDITIONS))

    def read_request(self, pod: Pod) -> Request:
        """What the pod asks for, with the models it wants and refuses."""
        names = limits.find_edition(pod, EDITIONS)

        def read(container: Container) -> tuple[Share, ...]:
            asked = (names.core, names.memory)
            return read_shares({key: limits.read_amount(container, key) for key in asked}, names)

        containers = limits.read_containers(pod, read)
        ceiling = None
        if not all(share.whole for each in containers for share in each.shares):
            # The library of a shared GPU refuses to start on a ceiling it cannot read.
            ceiling = read_ceiling(pod) or None
        constraints = Constraints(
            models=_read_model_list(pod, names.models),
            models_refused=_read_model_list(pod, names.models_refused),
        )
        return Request(containers, constraints, ceiling=ceiling)

    def most_shares(self, container: Container) -> tuple[tuple[Share, ...], ...]:
        found = []
        for names in EDITIONS:
            memory = limits.most_amount(container, names.memory) * names.memory_unit
            # Memory without compute brings no GPU.
            if core := limits.most_amount(container, names.core):
                found.append(limits.most_shares(core, memory))
        return tuple(found)

    def write_own(
        self, pod: Pod, request: Request, allocation: Allocation, node: Node, now_ns: int
    ) -> PodRecord:
        """The index annotations of the extender, and the fork's labels of its bind."""
        names = limits.find_edition(pod, EDITIONS)
        annotations = {
            names.key("predicate-node"): allocation.node,
            names.key("gpu-assigned"): "false",
            names.key("predicate-time"): str(now_ns),
        }
        for at, container in enumerate(pod.main_containers):
            if slices := allocation.slices_of(container.name):
                annotations[index_key(names, at)] = indexes.write_numbers(
                    indexes.used_gpu(node, piece).index for piece in slices
                )
        labels = {}
        if names.bind_time is not None and names.bind_phase is not None:
            labels = {names.bind_time: str(now_ns), names.bind_phase: "allocating"}
        return PodRecord(annotations, labels)

    def write_limits(self, pod: Pod, what: str, amount: int) -> Limits:
        names = limits.find_edition(pod, EDITIONS)
        if what == "memory":
            return {names.memory: amount // names.memory_unit}
        return {names.core: amount * (FULL if what == "gpus" else 1)}

    def read_own(self, pod: Pod, request: Request, node: Node) -> Allocation | None:
        names = limits.find_edition(pod, EDITIONS)
        keys = {each.name: index_key(names, at) for at, each in enumerate(pod.main_containers)}
        wanting = {each.name for each in request.containers}
        if not any(keys[name] in pod.annotations for name in keys if name in wanting):
            return None
        # The agent replaces the extender's GPU indexes by the minor numbers it really used.
        assigned = pod.annotations.get(names.key("gpu-assigned")) == "true"
        if not assigned:
            _check_node(pod, names, node)
        allocated = []
        for container in request.containers:
            key = keys.get(container.name)
            text = None if key is None else pod.annotations.get(key)
            if key is None or text is None:
                raise DialectError(
                    f"container {container.name}: no annotation says which GPUs it has, "
                    f"expected one like {index_key(names, 0)}"
                )
            find = indexes.gpu_with_minor if assigned else indexes.gpu_at
            allocated.append(indexes.read_container(annotation(key), text, container, node, find))
        return Allocation(node.name, tuple(allocated))


PODS: Final = TkestackPods()


def index_key(names: TkestackNames, at: int) -> str:
    """The annotation that lists the GPUs of the main container at this position."""
    return names.key(f"predicate-gpu-idx-{at}")


def _read_model_list(pod: Pod, key: str | None) -> tuple[str, ...]:
    text = None if key is None else pod.annotations.get(key)
    return () if key is None or text is None else read_models(annotation(key), text)


def _check_node(pod: Pod, names: TkestackNames, node: Node) -> None:
    key = names.key("predicate-node")
    text = pod.annotations.get(key)
    if text is not None and text != node.name:
        raise refuse(annotation(key), text, f"{node.name}, where the pod is")
