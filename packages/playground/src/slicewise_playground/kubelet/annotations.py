"""The label and the annotations by which people and tests speak to the simulated kubelets."""

from typing import Final

from slicewise_playground.objects.resources import Object

SIMULATED: Final = "playground.slicewise.io/simulated"
"""Label of a Node on a real API server: `true` has its kubelet simulated."""
KUBELET: Final = "playground.slicewise.io/kubelet"
"""Annotation of such a Node: `stopped` ends heartbeats and pod handling."""
RUN_SECONDS: Final = "playground.slicewise.io/run-seconds"
"""Annotation of a Pod: how long its containers run; without it they run until deleted."""
EXIT_CODE: Final = "playground.slicewise.io/exit-code"
"""Annotation of a Pod: the exit code of its containers; without it 0."""


def read_run_seconds(pod: Object) -> float | None:
    """How long a pod wants to run; raises ValueError when it says no number."""
    return _read_number(pod, RUN_SECONDS)


def read_exit_code(pod: Object) -> int:
    """How a pod wants to end; raises ValueError when it says no number."""
    return int(_read_number(pod, EXIT_CODE) or 0)


def _read_number(pod: Object, key: str) -> float | None:
    text = (pod["metadata"].get("annotations") or {}).get(key)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"annotation {key}={text!r}: expected a number") from None
    if not 0 <= number < 1e9:
        raise ValueError(f"annotation {key}={text!r}: expected a number from 0 to 1e9")
    return number
