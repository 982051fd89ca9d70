"""Containers that start without a GPU, for their resource is a plain amount on this node.

They run without a GPU. Nothing can hold them back, so it is said where people look.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

import structlog

from slicewise.kube.outcomes import PodEvent, PodKey
from slicewise.model import Pod, QuantityError
from slicewise.nodeagent.plugin.offers import OfferPlan

_log = structlog.get_logger(__name__)


class EventPoster(Protocol):
    def post(self, pod: PodKey, event: PodEvent) -> None:
        """Post an event on the pod."""


class UnservedPodWarnings:
    """Warns once for every pod of which a container gets no GPU."""

    def __init__(self, plan: OfferPlan, poster: EventPoster) -> None:
        self._plan = plan
        self._poster = poster
        self._said: set[str] = set()

    def look(self, pod: Pod) -> None:
        """Warn about this pod once, if one of its containers gets no GPU."""
        if pod.uid in self._said:
            return
        for container, resource in find_unserved(pod, self._plan):
            self._said.add(pod.uid)
            note = (
                f"container {container} asks for {resource} alone, which brings no GPU on this "
                "node; ask for cores beside it"
            )
            _log.error("container without a GPU", pod=f"{pod.namespace}/{pod.name}", reason=note)
            self._poster.post(
                pod, PodEvent(reason="GpuNotGiven", note=note, action="Starting", warning=True)
            )

    def forget(self, living: Callable[[str], bool]) -> None:
        """Drop what is known of pods that are gone."""
        self._said = {uid for uid in self._said if living(uid)}


def find_unserved(pod: Pod, plan: OfferPlan) -> Iterator[tuple[str, str]]:
    """The containers whose GPUs would come through a resource that is a plain amount here."""
    amounts = {resource.name for _, resource in plan.amounts}
    for edition in plan.editions if amounts else ():
        for container in pod.containers:
            try:
                carrier = edition.carrier(container)
            except QuantityError:
                continue
            if carrier is not None and carrier in amounts:
                yield container.name, carrier
