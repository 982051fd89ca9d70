"""The pods of this node as the API server's watch tells them, and waiting for what it will tell."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from slicewise.kube.local_pods import LocalPod
from slicewise.kube.watch import Seen, WatchEvent

T = TypeVar("T")


class NodePods:
    """Every pod bound to the node, in the order in which it was first heard of."""

    def __init__(self) -> None:
        self._pods: dict[str, LocalPod] = {}
        self._arrivals: dict[str, int] = {}
        self._count = 0
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[LocalPod | None], None]] = []

    def __iter__(self) -> Iterator[LocalPod]:
        """The pods, the longest known first."""
        return iter(tuple(self._pods.values()))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._pods)

    def listen(self, hear: Callable[[LocalPod | None], None]) -> None:
        """Tell of every pod that was seen, and of None whenever one is gone."""
        self._listeners.append(hear)

    def take(self, changes: Sequence[WatchEvent[LocalPod]]) -> None:
        """Learn what the watch tells."""
        for change in changes:
            heard = None
            if isinstance(change, Seen):
                heard = change.value
                self.put(heard)
            else:
                self._pods.pop(change.key, None)
                self._arrivals.pop(change.key, None)
            for hear in self._listeners:
                hear(heard)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def put(self, found: LocalPod) -> None:
        """Learn of a pod that was read otherwise, unless what is known is newer."""
        uid = found.pod.uid
        known = self._pods.get(uid)
        if known is not None and known.pod.version > found.pod.version:
            return
        if known is None:
            self._count += 1
            self._arrivals[uid] = self._count
        self._pods[uid] = found

    def by_uid(self, uid: str) -> LocalPod | None:
        """The pod with this UID."""
        return self._pods.get(uid)

    def by_name(self, namespace: str, name: str) -> LocalPod | None:
        """The pod of this name that was heard of last."""
        named = [
            (self._arrivals[uid], found)
            for uid, found in self._pods.items()
            if found.pod.name == name and found.pod.namespace == namespace
        ]
        return max(named, key=lambda pair: pair[0])[1] if named else None

    def arrival(self, uid: str) -> int:
        """When the pod was heard of: smaller is earlier."""
        return self._arrivals.get(uid, self._count + 1)

    async def until(self, look: Callable[[], T | None], seconds: float) -> T | None:
        """What `look` finds as soon as it finds anything; None if it did not within this time."""
        end = asyncio.get_running_loop().time() + seconds
        while True:
            changed = self._changed
            found = look()
            if found is not None:
                return found
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                return None
            try:
                await asyncio.wait_for(changed.wait(), left)
            except TimeoutError:
                return look()
