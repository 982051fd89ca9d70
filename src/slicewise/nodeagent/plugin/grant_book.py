"""What every container started with; CDI specs and matches keep it over the agent's restarts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slicewise.dialects.shared.indexes import used_gpu
from slicewise.model import FULL, MiB, Node, Percent, Slice
from slicewise.model.grants import NO_SLICES, Slices

GrantedGpu = tuple[str, int, int]
"""A GPU by its UUID, with percent and MiB of it."""


@dataclass(frozen=True, slots=True)
class StartedGrant:
    """The GPUs that one container started with; `pod` is its pod's full name."""

    uid: str
    pod: str
    container: str
    gpus: tuple[GrantedGpu, ...]

    @property
    def uuids(self) -> frozenset[str]:
        return frozenset(uuid for uuid, _, _ in self.gpus)

    def gives(self, slices: Iterable[Slice], node: Node) -> bool:
        """Whether it is what these slices of the node are."""
        # A whole GPU has all its memory, of which the agent may be told to scale the size.
        return _plain(self.gpus) == _plain(name_slices(slices, node))


class GrantBook:
    """Every grant by pod and container."""

    def __init__(self, saved: Iterable[StartedGrant] = ()) -> None:
        self._known: dict[str, Mapping[str, StartedGrant]] = {}
        self._seen: dict[str, Mapping[str, StartedGrant]] = {}
        for grant in saved:
            self.put(grant)

    def find(self, uid: str, container: str) -> StartedGrant | None:
        return self.pod(uid).get(container)

    def pod(self, uid: str) -> Mapping[str, StartedGrant]:
        """The pod's grants by container; the same object for as long as none is added."""
        return self._known.get(uid, _NOTHING)

    def seen(self, uid: str, container: str) -> StartedGrant | None:
        """What a container that others started was seen to have."""
        return self._seen.get(uid, _NOTHING).get(container)

    def see(self, grants: Iterable[StartedGrant]) -> None:
        """Take over what containers that others started have, instead of what was seen before."""
        self._seen = {}
        for each in grants:
            self._seen[each.uid] = {**self._seen.get(each.uid, _NOTHING), each.container: each}

    def pods(self) -> tuple[str, ...]:
        return tuple(self._known)

    def put(self, grant: StartedGrant) -> None:
        self._known[grant.uid] = {**self.pod(grant.uid), grant.container: grant}

    def withdraw(self, uid: str, container: str) -> None:
        """The container did not start after all."""
        kept = {name: each for name, each in self.pod(uid).items() if name != container}
        self._known[uid] = kept
        if not kept:
            del self._known[uid]

    def drop(self, uid: str) -> None:
        """The pod's containers have ended for good."""
        self._known.pop(uid, None)

    def slices(self, uid: str, node: Node) -> Slices:
        """What the pod's containers hold, on the GPUs that the node has today."""
        grants = {**self._seen.get(uid, _NOTHING), **self.pod(uid)}
        if not grants:
            return NO_SLICES
        indexes = {gpu.uuid: gpu.index for gpu in node.gpus}
        return {
            name: tuple(
                Slice(indexes[uuid], Percent(cores), MiB(memory))
                for uuid, cores, memory in grant.gpus
                if uuid in indexes
            )
            for name, grant in grants.items()
        }


def name_slices(slices: Iterable[Slice], node: Node) -> tuple[GrantedGpu, ...]:
    """The slices by their GPUs' UUIDs, which stay when indexes shift."""
    return tuple((used_gpu(node, each).uuid, each.cores, each.memory) for each in slices)


def _plain(gpus: Iterable[GrantedGpu]) -> list[GrantedGpu]:
    return [(uuid, cores, 0 if cores == FULL else memory) for uuid, cores, memory in gpus]


_NOTHING: Mapping[str, StartedGrant] = {}
