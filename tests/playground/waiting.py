"""Waiting for a state of the store without sleeping: look again on every change."""

import threading
from collections.abc import Callable

from slicewise_playground.cluster import Playground


def wait_for(playground: Playground, resource: str, reached: Callable[[], bool]) -> None:
    """Return once the state is reached; fail after ten seconds without it."""
    changed = threading.Event()
    leave = playground.store.subscribe(resource, changed.set)
    try:
        while not reached():
            assert changed.wait(10), f"{resource}: the state was not reached"
            changed.clear()
    finally:
        leave()


def phases(playground: Playground) -> dict[str, str]:
    """The phase of every pod by name."""
    pods = playground.objects("pods")
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in pods}
