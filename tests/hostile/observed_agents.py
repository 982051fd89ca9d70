"""What agents would start, by the objects of the API alone, for as long as a test runs.

Each look reads all pods again and plays the agents of their nodes: whatever an agent would let
start is started, in random order, and stays so until its pod is gone.
"""

import threading
from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from e2e.truth import read_pieces
from hostile.pod_grants import read_grants
from slicewise.dialects import DEFAULT
from slicewise.kube.objects import NodeBody, PodBody
from slicewise.model import Node
from slicewise.model.grants import PodGrants, find_overfull, what_would_start
from slicewise.state.settings import open_reader
from slicewise.trust import TrustStore, read_trust
from slicewise_testbed.api import Api
from slicewise_testbed.control_plane import ControlPlane


class ObservedAgents:
    """Looks at a cluster again and again, and keeps what was wrong."""

    def __init__(self, plane: ControlPlane, namespace: str, chance: Random) -> None:
        self._plane, self._namespace, self._chance = plane, namespace, chance
        self._reader = open_reader()
        self._started: dict[str, PodGrants] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.looks = 0
        self.starts = 0
        self.overfull: list[str] = []
        """GPUs of which more was started than there is."""
        self.double_booked: set[tuple[str, int]] = set()
        """Nodes and looks at which records alone asked for more of a GPU than there is."""
        self.refused: dict[str, set[str]] = {}
        """Pods that an agent which starts again would not start, and those of their epoch there."""
        self.newest_refused: list[str] = []
        """Pods of the newest leader that such an agent would not start."""
        self.failure: BaseException | None = None

    def __enter__(self) -> "ObservedAgents":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            with self._plane.api() as api:
                while not self._stop.wait(0.05):
                    self._look(api)
                self._look(api)
        except BaseException as error:
            self.failure = error

    def _look(self, api: Api) -> None:
        trust = self._read_trust(api)
        if trust is None:
            return
        self.looks += 1
        bound: dict[str, list[dict[str, Any]]] = {}
        pods = api.get(f"/api/v1/namespaces/{self._namespace}/pods")["items"]
        for found in pods:
            if node := found["spec"].get("nodeName"):
                bound.setdefault(node, []).append(found)
        alive = {found["metadata"]["uid"] for found in pods}
        self._started = {uid: each for uid, each in self._started.items() if uid in alive}
        for name, raw in bound.items():
            body = msgspec.convert(api.get(f"/api/v1/nodes/{name}"), NodeBody)
            node = DEFAULT.read_node(self._reader.read_node_notice(body))
            self._judge(node, raw, trust)

    def _read_trust(self, api: Api) -> TrustStore | None:
        maps = api.get("/api/v1/namespaces/kube-system/configmaps")["items"]
        for found in maps:
            if found["metadata"]["name"] == "slicewise-trust":
                store = TrustStore()
                store.take(read_trust(found.get("data") or {}))
                return store
        return None

    def _judge(self, node: Node, raw: list[dict[str, Any]], trust: TrustStore) -> None:
        pods = [self._reader.read_pod(msgspec.convert(each, PodBody)) for each in raw]
        grants = {pod.uid: read_grants(pod, node, trust) for pod in pods}
        self._judge_again(node, grants)
        grants |= {uid: each for uid, each in self._started.items() if uid in grants}
        for uid in self._chance.sample(sorted(grants), len(grants)):
            pod = grants[uid]
            if pod.waiting and uid not in what_would_start(node, grants.values()).refused:
                self.starts += 1
                grants[uid] = self._started[uid] = replace(pod, started=dict(pod.recorded))
        self.overfull += [str(each) for each in find_overfull(node, grants.values())]
        self.overfull += _add_up(node, [each for each in raw if _uid(each) in self._started])
        if _add_up(node, raw):
            self.double_booked.add((node.name, self.looks))

    def _judge_again(self, node: Node, grants: dict[str, PodGrants]) -> None:
        """What an agent that restarts would refuse, and whether the newest leader's is in it."""
        refused = what_would_start(node, grants.values()).refused
        newest = max(each.order[0] for each in grants.values())
        for uid in refused:
            epoch = grants[uid].order[0]
            beside = {each.uid for each in grants.values() if each.order[0] == epoch}
            self.refused.setdefault(uid, set()).update(beside)
        self.newest_refused += [
            f"{refused[uid]} (epoch {newest})" for uid in refused if grants[uid].order[0] == newest
        ]


def _uid(found: dict[str, Any]) -> str:
    return str(found["metadata"]["uid"])


def _add_up(node: Node, raw: list[dict[str, Any]]) -> list[str]:
    """GPUs over their size by plain addition over the records of pods."""
    sums = {gpu.index: (0, 0) for gpu in node.gpus}
    for found in raw:
        for gpu, cores, memory in read_pieces(found):
            sums[gpu] = sums[gpu][0] + cores, sums[gpu][1] + memory
    most = {gpu.index: (100, gpu.memory) for gpu in node.gpus}
    return [
        f"{node.name} gpu {gpu}: {held} of {most[gpu]}"
        for gpu, held in sums.items()
        if held[0] > most[gpu][0] or held[1] > most[gpu][1]
    ]
