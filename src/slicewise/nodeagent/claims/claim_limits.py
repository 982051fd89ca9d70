"""Limits inside containers that received their share by a claim: the same library and files.

A container has one grant, and what a claim brings is fixed before it is known which container
comes first. So a request is limited where every container that uses it uses no other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from slicewise.dialects.shared.injection import Injection
from slicewise.kube.local_pods import LocalPod
from slicewise.model import FULL, HOOKED, Gpu, Isolation, IsolationTier, Slice
from slicewise.model.claim import Claim
from slicewise.model.grants import Slices
from slicewise.nodeagent.limits.container_limits import ISOLATION_ENV, LimitInjector, grant_part
from slicewise.nodeagent.limits.driver_limits import LimitRefusedError
from slicewise.nodeagent.limits.grant_file import MOST_DEVICES, GrantFlags, LimitGrant
from slicewise.nodeagent.limits.limiter_library import InstalledLibrary

_FLAGS: Final = (
    GrantFlags.FAIL_CLOSED
    | GrantFlags.SHOW_LIMITS
    | GrantFlags.COUNT_MANAGED
    | GrantFlags.GATE_MEMORY
)


def find_lone_requests(claim: Claim, users: Iterable[LocalPod]) -> frozenset[str]:
    """The requests of a claim whose every container uses nothing else of any claim."""
    lone: set[str] = set()
    beside: set[str] = set()
    for pod in users:
        used: dict[str, int] = {}
        own: dict[str, set[str]] = {}
        for container, name, request in pod.uses:
            requests = {request} if request else set(claim.requests)
            mine = name == claim.name
            used[container] = used.get(container, 0) + (len(requests) if mine else 1)
            if mine:
                own.setdefault(container, set()).update(requests)
        for container, requests in own.items():
            (lone if used[container] == 1 else beside).update(requests)
    return frozenset(lone - beside)


@dataclass(frozen=True, slots=True)
class ClaimLimits:
    """Writes and mounts the limits of claims' requests, where the node limits anybody."""

    injector: LimitInjector

    def choose(
        self, claim: Claim, held: Slices, gpus: Mapping[int, Gpu], users: Sequence[LocalPod]
    ) -> tuple[str, ...]:
        """The requests that are limited: parts of GPUs that offer it, used alone."""
        if self.injector.library.installed is None:
            return ()
        lone = find_lone_requests(claim, users)
        return tuple(
            request
            for request, pieces in held.items()
            if request in lone and _is_limitable(pieces, gpus)
        )

    def extend(
        self, uid: str, request: str, pieces: Sequence[Slice], injection: Injection
    ) -> Injection:
        """What a limited request brings: the library, its grant, and where it notes its use."""
        mounts = self.injector.mount_files(uid, request, self._require(request))
        kept = HOOKED if any(map(_is_paced, pieces)) else Isolation(IsolationTier.HOOK)
        env = {**injection.env, ISOLATION_ENV: str(kept)}
        return replace(injection, env=env, mounts=(*injection.mounts, *mounts))

    def write(
        self, claim: Claim, requests: Iterable[str], held: Slices, gpus: Mapping[int, Gpu]
    ) -> None:
        """Make the files that are mounted, or bring them up to date in place."""
        settings = self.injector.settings
        for request in requests:
            devices = tuple(
                grant_part(gpus[piece.gpu], piece, settings.context)
                for piece in held.get(request, ())
                if piece.gpu in gpus
            )
            paced = any(each.cores for each in devices)
            flags = _FLAGS | GrantFlags.GATE_COMPUTE if paced else _FLAGS
            if not settings.timing:
                flags |= GrantFlags.NO_TIMING
            grant = LimitGrant(claim.uid, request, devices, flags)
            self.injector.folders.write(grant, self._require(request).version)

    def drop(self, uid: str) -> None:
        self.injector.folders.remove(uid)

    def _require(self, request: str) -> InstalledLibrary:
        installed = self.injector.library.installed
        if installed is None:
            raise LimitRefusedError(
                f"request {request} is limited, and this node has no library for that any more: "
                f"{self.injector.library.problem}"
            )
        return installed


def _is_paced(piece: Slice) -> bool:
    return 0 < piece.cores < FULL


def _is_limitable(pieces: Sequence[Slice], gpus: Mapping[int, Gpu]) -> bool:
    if not 0 < len(pieces) <= MOST_DEVICES:
        return False
    known = [(piece, gpus[piece.gpu]) for piece in pieces if piece.gpu in gpus]
    whole = all(piece.cores == FULL and piece.memory >= gpu.memory for piece, gpu in known)
    return not whole and all(
        IsolationTier.HOOK in gpu.isolation.memory and IsolationTier.HOOK in gpu.isolation.compute
        for _, gpu in known
    )
