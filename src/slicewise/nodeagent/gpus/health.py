"""Which GPUs take pods: a critical XID takes a GPU out of service; it returns after a quiet period.

The quiet period doubles each time the same GPU fails again soon. Time comes in as an argument.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from slicewise.model import Gpu
from slicewise.nodeagent.gpus.xids import Severity, explain
from slicewise.nvml.driver import ECC, XID, GpuDevice, GpuFault

_RESTARTED: Final = "was unhealthy when the agent last ran"


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """How long a GPU must stay free of faults before it returns to service."""

    first_seconds: float = 60.0
    """After its first fault."""
    most_seconds: float = 3600.0
    """However often it fails."""
    forget_seconds: float = 86400.0
    """After so long without a fault, the next one counts as the first."""

    def quiet_seconds(self, failures: int) -> float:
        """The quiet period of a GPU that has failed so many times."""
        most = max(self.first_seconds, self.most_seconds)
        return min(most, self.first_seconds * 2.0 ** min(failures - 1, 64))


@dataclass(frozen=True, slots=True)
class GpuHealthRecord:
    """One GPU's history: why it is unhealthy, when it last failed, and how many times."""

    reason: str
    last: float
    failures: int = 1
    unhealthy: bool = True


@dataclass(frozen=True, slots=True)
class HealthChange:
    """A GPU that became unhealthy, or returned to service, and why."""

    uuid: str
    healthy: bool
    reason: str


@dataclass(slots=True)
class GpuHealthTracker:
    """Remembers every GPU's faults, and says when it returns."""

    policy: RecoveryPolicy = field(default_factory=RecoveryPolicy)
    records: dict[str, GpuHealthRecord] = field(default_factory=dict)

    def resume(self, published: Iterable[Gpu], now: float) -> None:
        """Keep out of service the GPUs that were unhealthy before the agent restarted."""
        for gpu in published:
            if not gpu.healthy:
                self.records.setdefault(gpu.uuid, GpuHealthRecord(_RESTARTED, now))

    def hear(
        self, faults: Iterable[GpuFault], gpus: Sequence[GpuDevice], now: float
    ) -> list[HealthChange]:
        """Take in faults; one that names no GPU counts for all."""
        changes = []
        for fault in faults:
            reason = critical_reason(fault)
            if reason is not None:
                named = [fault.uuid] if fault.uuid else [device.gpu.uuid for device in gpus]
                changes += [change for uuid in named for change in self._fail(uuid, reason, now)]
        return changes

    def judge(self, gpus: Sequence[GpuDevice], now: float) -> list[HealthChange]:
        """Lasting trouble keeps a GPU unhealthy; after its quiet period it returns."""
        changes = []
        for device in gpus:
            if device.trouble:
                changes += self._fail(device.gpu.uuid, device.trouble, now)
        # A GPU that is not listed at all cannot be seen to be healthy.
        listed = {device.gpu.uuid for device in gpus} & self.records.keys()
        for uuid, record in [(uuid, self.records[uuid]) for uuid in sorted(listed)]:
            calm = now - record.last
            if record.unhealthy and calm >= self.policy.quiet_seconds(record.failures):
                self.records[uuid] = replace(record, unhealthy=False)
                words = f"no fault for {calm:.0f} s since: {record.reason}"
                changes.append(HealthChange(uuid, healthy=True, reason=words))
            elif not record.unhealthy and calm >= self.policy.forget_seconds:
                del self.records[uuid]
        return changes

    def due(self, now: float) -> float:
        """Seconds until a GPU may return; without end when all are healthy."""
        waiting = [record for record in self.records.values() if record.unhealthy]
        ends = [record.last + self.policy.quiet_seconds(record.failures) for record in waiting]
        return max(0.0, min(ends) - now) if ends else math.inf

    def apply(self, gpus: Sequence[GpuDevice]) -> tuple[GpuDevice, ...]:
        """The GPUs with their health as judged, and the reason where they are unhealthy."""
        return tuple(self._apply_record(device) for device in gpus)

    def _apply_record(self, device: GpuDevice) -> GpuDevice:
        record = self.records.get(device.gpu.uuid)
        if record is None or not record.unhealthy:
            return device
        gpu = replace(device.gpu, healthy=False)
        return replace(device, gpu=gpu, trouble=device.trouble or record.reason)

    def _fail(self, uuid: str, reason: str, now: float) -> list[HealthChange]:
        before = self.records.get(uuid)
        if before is not None and before.unhealthy:
            self.records[uuid] = replace(before, reason=reason, last=now)
            return []
        failures = 1 if before is None else before.failures + 1
        self.records[uuid] = GpuHealthRecord(reason, now, failures)
        return [HealthChange(uuid, healthy=False, reason=reason)]


def critical_reason(fault: GpuFault) -> str | None:
    """Why this fault makes its GPU unhealthy; None when it does not."""
    if fault.kind == XID and fault.xid is not None:
        meaning = explain(fault.xid)
        critical = meaning.severity is Severity.CRITICAL
        return f"XID {fault.xid}: {meaning.words}" if critical else None
    if fault.kind == ECC:
        return fault.detail or "a double-bit memory error"
    return fault.detail or fault.kind
