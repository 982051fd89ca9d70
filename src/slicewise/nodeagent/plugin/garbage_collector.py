"""Removes what deleted pods have left: specs, links and folders, and never one in use.

Three sources must agree that a pod is gone: the API server's watch, the kubelet's pod-resources,
and the time, for a pod that is being admitted may be in neither for a moment.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from slicewise.dialects import DEFAULT, Dialects
from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.holders import PodResourcesClient
from slicewise.model import SlicewiseError
from slicewise.nodeagent.files import remove
from slicewise.nodeagent.limits.limit_folders import LimitFolders
from slicewise.nodeagent.limits.vcuda import VcudaFolders
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.cdi import CdiSpecs, name_units
from slicewise.nodeagent.plugin.match_store import MatchStore

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CollectedGarbage:
    """What one run removed, and how many specs are in use."""

    removed: tuple[str, ...] = ()
    kept: int = 0


@dataclass(frozen=True, slots=True)
class AgentFiles:
    """The files that the agent makes for containers."""

    specs: CdiSpecs
    folders: VcudaFolders
    dev: Path
    matches: MatchStore
    dialects: Dialects = DEFAULT
    """Whose links under /dev are ours to remove."""
    limits: LimitFolders | None = None
    """The files of containers' limits, if any are limited."""


class GarbageCollector:
    """Compares the files on the node with its pods."""

    def __init__(
        self,
        pods: NodePods,
        holders: PodResourcesClient,
        files: AgentFiles,
        forgetters: Iterable[Callable[[Callable[[str], bool]], None]] = (),
        *,
        settle: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Take over what to compare; `settle` follows each look, and forgets in its own way."""
        known = files.dialects.dialects
        self._links = tuple(each.agent.links for each in known if each.agent.links)
        self._pods = pods
        self._holders = holders
        self._files = files
        self._forgetters = tuple(forgetters)
        self._settle = settle
        self._doubted: frozenset[str] = frozenset()
        self.claimed: Callable[[str], bool] = lambda _: False
        """Whether a ResourceClaim of this UID is prepared, whose limits stand among pods'."""

    async def run(self, every: float, due: asyncio.Event) -> None:
        """Collect periodically, and sooner after a pod was deleted, until cancelled."""
        while True:
            try:
                await self.look()
            except (KubeletError, SlicewiseError) as error:
                _log.warning("garbage not collected", error=str(error))
            due.clear()
            try:
                await asyncio.wait_for(due.wait(), every)
                # Pods are deleted in groups, and the kubelet frees their units a little later.
                await asyncio.sleep(min(every, 5.0))
            except TimeoutError:
                pass

    async def look(self) -> CollectedGarbage:
        """Remove what two runs in a row found unused."""
        # What is written after this point is left to the next run.
        specs = await asyncio.to_thread(self._files.specs.read)
        folders = await asyncio.to_thread(self._files.folders.pods)
        aliases = await asyncio.to_thread(self._files.folders.aliases)
        links = await asyncio.to_thread(self._list_links)
        held = await self._holders.list()
        sets = [units for each in held for units in each.units.items()]
        names = {name_units(resource, ids) for resource, ids in sets}
        hashes = {links.digest(ids) for links in self._links for _, ids in sets}
        linked = {link for owner in specs.values() if owner for link in owner.links}

        doubts: dict[str, Callable[[], object]] = {}
        for name, owner in specs.items():
            if name not in names and (owner is None or not self._lives(owner.uid)):
                doubts[f"spec {name}"] = partial(self._files.specs.remove, name, owner)
        for uid in folders:
            if not self._lives(uid):
                doubts[f"folder {uid}"] = partial(self._files.folders.remove, uid)
        for alias in aliases:
            if alias not in names:
                doubts[f"alias {alias}"] = partial(self._files.folders.remove_alias, alias)
        doubts |= await asyncio.to_thread(self._doubt_limits, names)
        for name, uids in self._files.matches.owners().items():
            if name not in names and not any(map(self._lives, uids)):
                doubts[f"note {name}"] = partial(self._files.matches.drop, name)
        for path in links:
            if path.name not in linked and not any(digest in path.name for digest in hashes):
                doubts[f"link {path.name}"] = partial(remove, path)
        sweep = await asyncio.to_thread(self._remove, doubts)
        for forget in self._forgetters:
            forget(self._lives)
        if self._settle is not None:
            await self._settle()
        return CollectedGarbage(sweep, len(specs) - sum(each.startswith("spec ") for each in sweep))

    def _doubt_limits(self, names: set[str]) -> dict[str, Callable[[], object]]:
        limits = self._files.limits
        if limits is None:
            return {}
        gone = [uid for uid in limits.pods() if not self._lives(uid) and not self.claimed(uid)]
        unheld = [alias for alias in limits.aliases() if alias not in names]
        return {
            **{f"limits {uid}": partial(limits.remove, uid) for uid in gone},
            **{f"limits by {alias}": partial(limits.remove_alias, alias) for alias in unheld},
        }

    def _remove(self, doubts: dict[str, Callable[[], object]]) -> tuple[str, ...]:
        removed = []
        for what, act in doubts.items():
            if what not in self._doubted:
                continue
            try:
                act()
            except SlicewiseError as error:
                _log.warning("leftover not removed", what=what, error=str(error))
                continue
            _log.info("leftover removed", what=what)
            removed.append(what)
        self._doubted = frozenset(doubts)
        return tuple(removed)

    def _lives(self, uid: str) -> bool:
        return self._pods.by_uid(uid) is not None

    def _list_links(self) -> tuple[Path, ...]:
        prefixes = tuple(prefix for links in self._links for prefix in links.prefixes)
        try:
            named = [each for each in self._files.dev.iterdir() if each.name.startswith(prefixes)]
            return tuple(path for path in named if path.is_symlink())
        except OSError:
            return ()
