"""Answers gpu-manager's library: a container that registers finds its limits and its PIDs.

A pod may claim anything; its pod is told by the socket it came through, and its container by
what the API server or the runtime says of the id.
"""

import array
import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import structlog

from slicewise.kubelet.errors import DeniedError, KubeletError
from slicewise.kubelet.vcuda_service import VcudaRegistration, VcudaSocket
from slicewise.model import SlicewiseError
from slicewise.nodeagent.files import check_name, write_whole
from slicewise.nodeagent.limits.vcuda_files import VcudaFolders
from slicewise.nodeagent.node_pods import NodePods

_log = structlog.get_logger(__name__)
PIDS: Final = "pids.config"
_MOST_PIDS: Final = 1024


class ContainerLookup(Protocol):
    """Which pod a container belongs to, by the runtime."""

    async def find_container(self, identity: str) -> tuple[str, str] | None:
        """The pod's UID and the container's name; None when the runtime does not know the id."""


class VcudaSockets:
    """The sockets of all pods that have a folder."""

    def __init__(
        self,
        pods: NodePods,
        folders: VcudaFolders,
        containers: ContainerLookup | None = None,
        proc: Path = Path("/proc"),
    ) -> None:
        self._pods = pods
        self._folders = folders
        self._containers = containers
        self._proc = proc
        self._open: dict[str, VcudaSocket] = {}

    async def serve(self, uid: str) -> None:
        """Processes of this pod can register; calling again is harmless."""
        if uid in self._open:
            return
        folder = self._folders.root / check_name("pod UID", uid)
        socket = self._open[uid] = VcudaSocket(folder, partial(self.register, uid))
        try:
            await socket.open()
        except KubeletError:
            del self._open[uid]
            raise

    async def resume(self) -> None:
        """Serve the pods that had a folder before the agent was started again."""
        for uid in self._folders.pods():
            if self._pods.by_uid(uid) is not None:
                try:
                    await self.serve(uid)
                except SlicewiseError as error:
                    _log.warning("vcuda socket not served", uid=uid, error=str(error))

    def forget(self, living: Callable[[str], bool]) -> None:
        """Close the sockets of pods that are gone."""
        for uid in [uid for uid in self._open if not living(uid)]:
            task = asyncio.ensure_future(self._open.pop(uid).close())
            task.add_done_callback(lambda done: done.exception())

    async def close(self) -> None:
        sockets, self._open = tuple(self._open.values()), {}
        await asyncio.gather(*(socket.close() for socket in sockets))

    async def register(self, uid: str, claim: VcudaRegistration) -> None:
        """A process of this pod has come up: its container's folder gets its PIDs."""
        if claim.container:
            name = self._check_container(uid, claim.container)
            await asyncio.to_thread(self._write_pids, uid, name, claim.identity)
            return
        try:
            identity = check_name("container id", claim.identity)
        except SlicewiseError as error:
            raise DeniedError(str(error)) from error
        name = await self._find_container(uid, identity)
        await asyncio.to_thread(self._folders.name_container, uid, name, identity)
        await asyncio.to_thread(self._write_pids, uid, name, identity)

    async def _find_container(self, uid: str, identity: str) -> str:
        local = self._pods.by_uid(uid)
        for each in () if local is None else local.containers:
            if each.id == identity:
                return each.name
        owner = (
            None if self._containers is None else await self._containers.find_container(identity)
        )
        if owner is None or owner[0] != uid:
            raise DeniedError(f"container id {identity}: expected a container of pod {uid}")
        return self._check_container(uid, owner[1])

    def _check_container(self, uid: str, name: str) -> str:
        local = self._pods.by_uid(uid)
        if local is None or name not in {each.name for each in local.pod.containers}:
            raise DeniedError(f"container {name!r}: expected a container of pod {uid}")
        return name

    def _write_pids(self, uid: str, name: str, identity: str) -> None:
        pids = sorted(find_pids(self._proc, identity))[:_MOST_PIDS] if identity else []
        path = self._folders.root / uid / name / PIDS
        write_whole(path, array.array("i", pids).tobytes())


def find_pids(proc: Path, identity: str) -> Iterator[int]:
    """The host's PIDs of one container, by the cgroup each process says it is in."""
    for path in proc.iterdir():
        if path.name.isdecimal():
            try:
                if identity in (path / "cgroup").read_text():
                    yield int(path.name)
            except OSError:
                continue
