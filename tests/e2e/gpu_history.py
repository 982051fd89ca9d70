"""What every GPU held at every moment, by the API server's own history and nothing else.

Pods and claims are watched; revisions of the API server order the changes of both, so that their
sum after each change is what anybody could have read at that moment.
"""

import threading

from e2e.truth import read_pieces
from slicewise.model.claim import DRIVER, GRANTED, REFUSED

_PATHS = {"Pod": "/api/v1/pods", "ResourceClaim": "/apis/resource.k8s.io/v1/resourceclaims"}
_ENDED = ("Succeeded", "Failed")
_LONG = 900


class GpuHistory:
    """Every change of pods and claims from now on, until an object of a given name is created."""

    def __init__(self, plane, gpus, last):
        self._sizes = {gpu.index: gpu.memory for gpu in gpus}
        self._devices = {gpu.uuid.lower(): gpu.index for gpu in gpus}
        self._last = last
        self._events = []
        self._failed = []
        with plane.api() as api:
            begun = api.get("/api/v1/pods", limit="1")["metadata"]["resourceVersion"]
        self._threads = [
            threading.Thread(target=self._follow, args=(plane, path, begun), daemon=True)
            for path in _PATHS.values()
        ]
        for each in self._threads:
            each.start()

    def _follow(self, plane, path, begun):
        version = begun
        try:
            while True:
                with plane.api() as api:
                    for event in api.watch(path, _LONG, resourceVersion=version):
                        found = event["object"]
                        version = found["metadata"]["resourceVersion"]
                        self._events.append((int(version), event["type"], found))
                        if found["metadata"]["name"] == self._last:
                            return
        except Exception as error:  # What ended a thread is raised by whoever waits for it.
            self._failed.append(error)

    def finish(self):
        """Wait until both have seen the object of the given name."""
        for each in self._threads:
            each.join(60)
            assert not each.is_alive(), "the last object was never seen"
        assert self._failed == []

    def replay(self):
        """Percent and MiB of each GPU by pods and by claims, after every change in order."""
        held = {}
        for _, kind, found in sorted(self._events, key=lambda each: each[0]):
            uid = found["metadata"]["uid"]
            is_claim = found["kind"] == "ResourceClaim"
            pieces = [] if kind == "DELETED" else list(self._read(found, is_claim))
            if pieces:
                held[uid] = is_claim, pieces
            elif held.pop(uid, None) is None:
                continue
            yield self._sum(held.values())

    def count_verdicts(self):
        """How many claims were granted, and how many refused, at any time."""
        granted, refused = set(), set()
        for _, _, found in self._events:
            for each in found.get("status", {}).get("devices", ()):
                kinds = {c["type"] for c in each.get("conditions", ()) if c["status"] == "True"}
                share = found["metadata"]["uid"], each.get("shareID")
                granted |= {share} if GRANTED in kinds else set()
                refused |= {share} if REFUSED in kinds else set()
        return len(granted), len(refused)

    def _read(self, found, is_claim):
        if is_claim:
            yield from self._read_claim(found)
        elif found["spec"].get("nodeName") and found["status"].get("phase") not in _ENDED:
            yield from read_pieces(found)

    def _read_claim(self, found):
        status = found.get("status", {})
        granted = {
            (each["pool"], each["device"])
            for each in status.get("devices", ())
            for condition in each.get("conditions", ())
            if condition["type"] == GRANTED and condition["status"] == "True"
        }
        for each in status.get("allocation", {}).get("devices", {}).get("results", ()):
            if each["driver"] == DRIVER and (each["pool"], each["device"]) in granted:
                amounts = each["consumedCapacity"]
                yield (
                    self._devices[each["device"]],
                    int(amounts["cores"]),
                    _read_mebibytes(amounts["memory"]),
                )

    def _sum(self, holders):
        sums = {gpu: {False: [0, 0], True: [0, 0]} for gpu in self._sizes}
        for is_claim, pieces in holders:
            for gpu, cores, memory in pieces:
                sums[gpu][is_claim][0] += cores
                sums[gpu][is_claim][1] += self._sizes[gpu] if cores == 100 else memory
        return sums


def _read_mebibytes(text):
    units = {"Mi": 1, "Gi": 1024}
    return int(text[:-2]) * units[text[-2:]] if text[-2:] in units else int(text) >> 20
