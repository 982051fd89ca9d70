"""Starts that are refused for good reasons: counted, and told once on the pod."""

from collections import Counter
from collections.abc import Callable
from enum import Enum

from slicewise.dialects.shared.records import ALLOCATION
from slicewise.dialects.shared.signed_record import SIGNATURE
from slicewise.kube.events import EventRecorder
from slicewise.kube.outcomes import PodEvent
from slicewise.kubelet.errors import DeniedError
from slicewise.model import Pod, RecordVerdict, SignatureState


class RefusalCause(Enum):
    """Why a container may not start, as the metric names it."""

    UNSIGNED = "unsigned"
    FORGED = "forged"
    UNREADABLE = "unreadable"
    UNKNOWN_KEY = "unknown_key"
    NO_KEYS = "no_keys"
    CONFLICT = "conflict"
    CHANGED = "changed"


_BY_SIGNATURE = {
    SignatureState.VALID: RefusalCause.UNREADABLE,
    SignatureState.UNKNOWN_KEY: RefusalCause.UNKNOWN_KEY,
    SignatureState.NO_KEYS: RefusalCause.NO_KEYS,
}
_REMEDIES = {
    RefusalCause.UNSIGNED: "delete the pod and let the scheduler place it, "
    "or begin a take-over for pods from before",
    RefusalCause.FORGED: "delete the pod and let the scheduler place it",
    RefusalCause.UNREADABLE: "delete the pod and let the scheduler place it",
    RefusalCause.UNKNOWN_KEY: "publish the extender's public key again, or delete the pod",
    RefusalCause.NO_KEYS: "start the extender, which publishes its public key",
}


class StartRefusedError(DeniedError):
    """A start that would give a container what is not its own."""

    def __init__(self, pod: Pod, cause: RefusalCause, why: str) -> None:
        super().__init__(f"pod {pod.namespace}/{pod.name}: {why}")
        self.pod = pod
        self.cause = cause


def find_cause(verdict: RecordVerdict) -> RefusalCause:
    """Why the record of this verdict is not believed."""
    if verdict.signature is None:
        return RefusalCause.UNSIGNED
    return _BY_SIGNATURE.get(verdict.signature, RefusalCause.FORGED)


def explain_verdict(verdict: RecordVerdict) -> str:
    """The annotation that is at fault, what is wrong with it, and what to do."""
    cause = find_cause(verdict)
    field = ALLOCATION if verdict.signature is SignatureState.VALID else SIGNATURE
    what = (
        verdict.detail
        if verdict.detail.startswith("annotation")
        else (f"annotation {field}: {verdict.detail}")
    )
    return f"{what}; {_REMEDIES[cause]}"


class StartRefusals:
    """Counts refused starts by cause, and warns of each once on its pod."""

    def __init__(self, events: EventRecorder) -> None:
        self.counts: Counter[RefusalCause] = Counter()
        self._events = events
        self._said: set[tuple[str, RefusalCause]] = set()

    def hear(self, error: StartRefusedError) -> None:
        """Count the refusal, and tell of it on the pod unless that was done."""
        self.counts[error.cause] += 1
        key = (error.pod.uid, error.cause)
        if key not in self._said:
            self._said.add(key)
            event = PodEvent(
                reason="GpuStartRefused", note=str(error), action="Starting", warning=True
            )
            self._events.post(error.pod, event)

    def forget(self, living: Callable[[str], bool]) -> None:
        """Drop what is known of pods that are gone."""
        self._said = {(uid, cause) for uid, cause in self._said if living(uid)}
