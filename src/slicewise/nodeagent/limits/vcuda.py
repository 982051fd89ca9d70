"""gpu-manager's folder and socket of a pod: what its limiter library finds in a container.

The container sees the folder read-only as /etc/vcuda. Under it every container has a folder of
its own name with its limits, and a link from its id once the runtime has assigned one.
"""

import array
import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from slicewise.dialects.shared.injection import VcudaLimit
from slicewise.kubelet.errors import DeniedError
from slicewise.kubelet.runtime import RuntimeClient
from slicewise.kubelet.vcuda_service import VcudaRegistration, VcudaSocket
from slicewise.model import BYTES_PER_MIB, SlicewiseError
from slicewise.nodeagent.files import check_name, make_folder, make_link, remove, write_whole
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.usage.cgroups import CgroupRef, read_cgroup_refs

CONFIG: Final = "vcuda.config"
# pod UID, soft ceiling, reserved, container, bus, memory, share, hard, driver (2), enabled, gap
_CONFIG: Final = struct.Struct("<48si4044x4096s16xQiiiii4x")
_log = structlog.get_logger(__name__)
PIDS: Final = "pids.config"
_MOST_PIDS: Final = 1024
# Between two looks at all processes of the host, or two questions to the runtime, for one pod.
_PAUSE_SECONDS: Final = 0.1


def write_config(uid: str, container: str, limit: VcudaLimit, driver: str) -> bytes:
    """The limits of one container as the library reads them."""
    major, minor = read_driver(driver)
    return _CONFIG.pack(
        uid.encode()[:47],
        limit.ceiling or 0,
        container.encode()[:4095],
        limit.memory * BYTES_PER_MIB,
        limit.cores,
        int(limit.ceiling is None),
        major,
        minor,
        int(not limit.whole),
    )


def read_driver(version: str) -> tuple[int, int]:
    """Major and minor number of a driver; zero for what is no number."""
    parts = [int(part) if part.isdecimal() else 0 for part in version.split(".")]
    return (*parts, 0, 0)[0], (*parts, 0, 0)[1]


class VcudaFolders:
    def __init__(self, root: Path) -> None:
        self.root = root

    def write_limits(self, uid: str, container: str, config: bytes) -> None:
        folder = self._folder(uid) / check_name("container", container)
        make_folder(folder)
        path = folder / CONFIG
        if not path.is_file() or path.read_bytes() != config:
            write_whole(path, config)

    def name_container(self, uid: str, container: str, identity: str) -> None:
        """Link the container's folder by the container's id."""
        folder = self._folder(uid)
        if (folder / check_name("container", container)).is_dir():
            make_link(folder / check_name("container id", identity), container)

    def alias(self, name: str, uid: str) -> None:
        """Link the pod's folder by its units, which are known before the pod is."""
        make_folder(self.root / "by-units")
        make_link(self.root / "by-units" / name, f"../{check_name('pod UID', uid)}")

    def pods(self) -> tuple[str, ...]:
        if not self.root.is_dir():
            return ()
        folders = (each for each in self.root.iterdir() if each.is_dir() and not each.is_symlink())
        return tuple(sorted({each.name for each in folders} - {"by-units"}))

    def aliases(self) -> tuple[str, ...]:
        folder = self.root / "by-units"
        return tuple(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else ()

    def remove(self, uid: str) -> None:
        remove(self._folder(uid))

    def remove_alias(self, name: str) -> None:
        remove(self.root / "by-units" / check_name("alias", name))

    def _folder(self, uid: str) -> Path:
        return self.root / check_name("pod UID", uid)


class _Turns:
    """The work that one pod's registrations cost others, one piece at a time and not too often."""

    def __init__(self) -> None:
        self.waiting: dict[tuple[str, str], asyncio.Future[None]] = {}
        """Looks that have not begun, by container and id."""
        self.names: dict[str, str] = {}
        """The containers that the runtime told, by id."""
        self.lock = asyncio.Lock()
        self._next = 0.0

    @asynccontextmanager
    async def pace(self) -> AsyncIterator[None]:
        """Begin only a while after the last piece; for whoever has the lock."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._next - loop.time())
        try:
            yield
        finally:
            self._next = loop.time() + _PAUSE_SECONDS


class VcudaSockets:
    """The sockets of all pods that have a folder; whoever registers finds its limits and PIDs.

    A pod may claim anything; its pod is told by the socket it came through, and its container by
    what the API server or the runtime says of the id. It may claim it as often as it likes: a look
    at the host's processes is shared by all that wait for it, and keeps no other work waiting.
    """

    def __init__(
        self,
        pods: NodePods,
        folders: VcudaFolders,
        runtime: RuntimeClient | None = None,
        proc: Path = Path("/proc"),
    ) -> None:
        self._pods = pods
        self._folders = folders
        self._runtime = runtime
        self._proc = proc
        self._open: dict[str, VcudaSocket] = {}
        self._turns: dict[str, _Turns] = {}
        self._looking = ThreadPoolExecutor(1, "vcuda-pids")

    async def serve(self, uid: str) -> None:
        """Processes of this pod can register; calling again is harmless."""
        if uid in self._open:
            return
        try:
            folder = self._folders.root / check_name("pod UID", uid)
            socket = self._open[uid] = VcudaSocket(folder, partial(self.register, uid))
            await socket.open()
        except SlicewiseError as error:
            # Only the original's library needs the socket, and few containers have it.
            self._open.pop(uid, None)
            _log.warning("vcuda socket not served", uid=uid, error=str(error))

    async def resume(self) -> None:
        """Serve the pods that had a folder before the agent was started again."""
        for uid in self._folders.pods():
            if self._pods.by_uid(uid) is not None:
                await self.serve(uid)

    def forget(self, living: Callable[[str], bool]) -> None:
        """Close the sockets of pods that are gone."""
        for uid in [uid for uid in self._open if not living(uid)]:
            self._turns.pop(uid, None)
            task = asyncio.ensure_future(self._open.pop(uid).close())
            task.add_done_callback(lambda done: done.exception())

    async def close(self) -> None:
        sockets, self._open = tuple(self._open.values()), {}
        await asyncio.gather(*(socket.close() for socket in sockets))
        self._looking.shutdown(wait=False, cancel_futures=True)

    async def register(self, uid: str, claim: VcudaRegistration) -> None:
        """A process of this pod has come up: its container's folder gets its PIDs."""
        if claim.container and not claim.identity:
            name = self._check_container(uid, claim.container)
            await self._share_look(uid, name, "")
            return
        try:
            identity = check_name("container id", claim.identity)
        except SlicewiseError as error:
            raise DeniedError(str(error)) from error
        name = await self._find_container(uid, identity)
        if claim.container not in ("", name):
            raise DeniedError(f"container {claim.container!r}: expected {name}, whose id it has")
        await self._share_look(uid, name, identity)

    async def _share_look(self, uid: str, name: str, identity: str) -> None:
        """Return once the PIDs were written by a look that began after this call."""
        turns, key = self._find_turns(uid), (name, identity)
        if key not in turns.waiting:
            turns.waiting[key] = asyncio.ensure_future(self._look(uid, turns, key))
            turns.waiting[key].add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(turns.waiting[key])

    async def _look(self, uid: str, turns: _Turns, key: tuple[str, str]) -> None:
        async with turns.lock, turns.pace():
            del turns.waiting[key]
            write = partial(self._write_found, uid, *key)
            await asyncio.get_running_loop().run_in_executor(self._looking, write)

    def _write_found(self, uid: str, name: str, identity: str) -> None:
        if identity:
            self._folders.name_container(uid, name, identity)
        self._write_pids(uid, name, identity)

    def _find_turns(self, uid: str) -> _Turns:
        return self._turns.setdefault(uid, _Turns())

    async def _find_container(self, uid: str, identity: str) -> str:
        local = self._pods.by_uid(uid)
        for each in () if local is None else local.containers:
            if each.id == identity:
                return each.name
        turns = self._find_turns(uid)
        async with turns.lock:
            if identity not in turns.names:
                async with turns.pace():
                    turns.names[identity] = await self._ask_runtime(uid, identity)
        return turns.names[identity]

    async def _ask_runtime(self, uid: str, identity: str) -> str:
        owner = None if self._runtime is None else await self._runtime.find_container(identity)
        if owner is None or owner[0] != uid:
            raise DeniedError(f"container id {identity}: expected a container of pod {uid}")
        return self._check_container(uid, owner[1])

    def _check_container(self, uid: str, name: str) -> str:
        local = self._pods.by_uid(uid)
        if local is None or name not in {each.name for each in local.pod.containers}:
            raise DeniedError(f"container {name!r}: expected a container of pod {uid}")
        return name

    def _write_pids(self, uid: str, name: str, identity: str) -> None:
        local = self._pods.by_uid(uid)
        group = uid if local is None or local.cgroup is None else local.cgroup
        found = find_pids(self._proc, CgroupRef(group, identity)) if identity else ()
        pids = sorted(found)[:_MOST_PIDS]
        path = self._folders.root / uid / name / PIDS
        write_whole(path, array.array("i", pids).tobytes())


def find_pids(proc: Path, container: CgroupRef) -> Iterator[int]:
    """The host's PIDs of one container of one pod, by the cgroup the kernel shows for each."""
    for path in proc.iterdir():
        if path.name.isdecimal():
            try:
                if container in read_cgroup_refs((path / "cgroup").read_text()):
                    yield int(path.name)
            except OSError:
                continue
