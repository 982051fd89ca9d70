"""What a scheduler leaves on pods: events that are counted, and the PodScheduled condition."""

import contextlib
import secrets
from collections import Counter
from collections.abc import Mapping

from slicewise_playground.api.subresources import set_condition
from slicewise_playground.api.writes import EmbeddedApi, ObjectRef
from slicewise_playground.objects.errors import ApiError
from slicewise_playground.objects.resources import Object, find
from slicewise_playground.objects.store import StoreKey, key_of

PODS = find("pods")
EVENTS = find("events")
COMPONENT = "playground-scheduler"


class SchedulerEvents:
    """Writes a scheduler's events; the same words about the same pod are counted, not repeated."""

    def __init__(self, api: EmbeddedApi) -> None:
        """Write through an API."""
        self._api = api
        self._written: dict[tuple[str, str], StoreKey] = {}

    def placed(self, pod: Object, node: str) -> None:
        """Say where the pod went, and forget what was said before."""
        meta = pod["metadata"]
        for key in [key for key in self._written if key[0] == meta["uid"]]:
            del self._written[key]
        words = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
        self._post(pod, "Scheduled", words, warning=False)

    def failed(self, pod: Object, words: str, reason: str = "Unschedulable") -> None:
        """Say why the pod waits, in an event and in its status."""
        self._post(pod, "FailedScheduling", words, warning=True)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": words,
        }
        now = (pod.get("status") or {}).get("conditions") or []
        if any(condition.items() <= each.items() for each in now):
            return
        target = ObjectRef(PODS, *key_of(pod), "status")
        with contextlib.suppress(ApiError):
            self._api.patch(target, lambda item: self._mark(item, condition))

    def _mark(self, item: Object, condition: Object) -> Object:
        status = dict(item["status"])
        # The pod may have been bound while somebody still believed that it waits.
        if not item["spec"].get("nodeName"):
            set_condition(status, {**condition, "lastTransitionTime": self._api.stamp()})
        return {**item, "status": status}

    def _post(self, pod: Object, reason: str, words: str, *, warning: bool) -> None:
        meta = pod["metadata"]
        said = (meta["uid"], words)
        with contextlib.suppress(ApiError):
            if said in self._written:
                self._recount(self._written[said])
                return
            name = f"{meta['name'][:220]}.{secrets.token_hex(8)}"
            stamp = self._api.stamp()
            event = {
                "metadata": {"name": name, "namespace": meta["namespace"]},
                "involvedObject": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "namespace": meta["namespace"],
                    "name": meta["name"],
                    "uid": meta["uid"],
                },
                "type": "Warning" if warning else "Normal",
                "reason": reason,
                "message": words,
                "count": 1,
                "firstTimestamp": stamp,
                "lastTimestamp": stamp,
                "source": {"component": COMPONENT},
                "reportingComponent": COMPONENT,
            }
            self._api.create(ObjectRef(EVENTS, meta["namespace"]), event)
            self._written[said] = (meta["namespace"], name)

    def _recount(self, key: StoreKey) -> None:
        stamp = self._api.stamp()
        self._api.patch(
            ObjectRef(EVENTS, *key),
            lambda item: {**item, "count": item.get("count", 1) + 1, "lastTimestamp": stamp},
        )


def count_reasons(reasons: Mapping[str, str]) -> str:
    """Why no node will do, as kubectl shows it: how many nodes gave which reason."""
    counts = Counter(reasons.values())
    parts = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"0/{len(reasons)} nodes are available: {', '.join(parts)}."
