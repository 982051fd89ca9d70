"""Which GPUs can be trusted with pods: a grave fault rests a GPU, and time brings it back.

A GPU returns by itself once it has been well for a while; one that falls ill again soon must
be well for twice as long each time. Time comes in as an argument.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from slicewise.model import Gpu
from slicewise.nodeagent.gpus.xids import Severity, explain
from slicewise.nvml.driver import ECC, XID, GpuDevice, GpuFault

_RESTARTED: Final = "was unhealthy when the agent last ran"


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """How long a GPU must be well before it is trusted again."""

    first_seconds: float = 60.0
    """After its first fault."""
    most_seconds: float = 3600.0
    """However often it fails."""
    forget_seconds: float = 86400.0
    """After so long without a fault, the next one counts as the first."""

    def rest(self, spells: int) -> float:
        """How long a GPU must be well that fell ill so many times."""
        most = max(self.first_seconds, self.most_seconds)
        return min(most, self.first_seconds * 2.0 ** min(spells - 1, 64))


@dataclass(frozen=True, slots=True)
class GpuHealthRecord:
    """One GPU's history: why it is ill, when it last was, and how many times."""

    reason: str
    last: float
    spells: int = 1
    ill: bool = True


@dataclass(frozen=True, slots=True)
class HealthChange:
    """A GPU that fell ill, or returned, and why."""

    uuid: str
    healthy: bool
    reason: str


@dataclass(slots=True)
class GpuHealthTracker:
    """What is remembered of every GPU's faults."""

    patience: RecoveryPolicy = field(default_factory=RecoveryPolicy)
    records: dict[str, GpuHealthRecord] = field(default_factory=dict)

    def resume(self, published: Iterable[Gpu], now: float) -> None:
        """Rest the GPUs that were published as unhealthy before the agent was restarted."""
        for gpu in published:
            if not gpu.healthy:
                self.records.setdefault(gpu.uuid, GpuHealthRecord(_RESTARTED, now))

    def hear(
        self, faults: Iterable[GpuFault], gpus: Sequence[GpuDevice], now: float
    ) -> list[HealthChange]:
        """Take note of faults; one that names no GPU is everybody's."""
        changes = []
        for fault in faults:
            reason = critical_reason(fault)
            if reason is not None:
                named = [fault.uuid] if fault.uuid else [device.gpu.uuid for device in gpus]
                changes += [change for uuid in named for change in self._fall(uuid, reason, now)]
        return changes

    def judge(self, gpus: Sequence[GpuDevice], now: float) -> list[HealthChange]:
        """Look at the GPUs: what lasts keeps them ill, and those that rested enough return."""
        changes = []
        for device in gpus:
            if device.trouble:
                changes += self._fall(device.gpu.uuid, device.trouble, now)
        # A GPU that is not listed at all cannot be seen to be well.
        listed = {device.gpu.uuid for device in gpus} & self.records.keys()
        for uuid, record in [(uuid, self.records[uuid]) for uuid in sorted(listed)]:
            calm = now - record.last
            if record.ill and calm >= self.patience.rest(record.spells):
                self.records[uuid] = replace(record, ill=False)
                words = f"well for {calm:.0f} s since: {record.reason}"
                changes.append(HealthChange(uuid, healthy=True, reason=words))
            elif not record.ill and calm >= self.patience.forget_seconds:
                del self.records[uuid]
        return changes

    def due(self, now: float) -> float:
        """Seconds until a GPU may return; without end when none is ill."""
        ill = [record for record in self.records.values() if record.ill]
        ends = [record.last + self.patience.rest(record.spells) for record in ill]
        return max(0.0, min(ends) - now) if ends else math.inf

    def apply(self, gpus: Sequence[GpuDevice]) -> tuple[GpuDevice, ...]:
        """The GPUs with their health as judged, and the reason where they are ill."""
        return tuple(self._mark(device) for device in gpus)

    def reasons(self) -> Mapping[str, str]:
        """Why each ill GPU is ill, by UUID."""
        return {uuid: record.reason for uuid, record in self.records.items() if record.ill}

    def _mark(self, device: GpuDevice) -> GpuDevice:
        record = self.records.get(device.gpu.uuid)
        if record is None or not record.ill:
            return device
        gpu = replace(device.gpu, healthy=False)
        return replace(device, gpu=gpu, trouble=device.trouble or record.reason)

    def _fall(self, uuid: str, reason: str, now: float) -> list[HealthChange]:
        before = self.records.get(uuid)
        if before is not None and before.ill:
            self.records[uuid] = replace(before, reason=reason, last=now)
            return []
        spells = 1 if before is None else before.spells + 1
        self.records[uuid] = GpuHealthRecord(reason, now, spells)
        return [HealthChange(uuid, healthy=False, reason=reason)]


def critical_reason(fault: GpuFault) -> str | None:
    """Why this fault makes its GPU ill; None when it does not."""
    if fault.kind == XID and fault.xid is not None:
        meaning = explain(fault.xid)
        return (
            f"XID {fault.xid}: {meaning.words}" if meaning.severity is Severity.CRITICAL else None
        )
    if fault.kind == ECC:
        return fault.detail or "a double-bit memory error"
    return fault.detail or fault.kind
