"""The messages between agent and server: a full report, then deltas, then heartbeats.

A frame is a big-endian length of four bytes and that much MessagePack; length 0 is a heartbeat.
A delta names what was lost, so that a pod left out of one is a pod that did not change.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from slicewise.model import SlicewiseError
from slicewise.reports.report import GpuReport, NodeReport, PodKey, PodReport, ProcessReport

PROTOCOL: Final = "slicewise-reports/1"
"""What both ends call this way of speaking when they agree on it."""
PATH: Final = "/reports"
"""Where the server takes reports."""
HEARTBEAT: Final = b"\0\0\0\0"
MAX_FRAME: Final = 1 << 20
MAX_GPUS: Final = 256
MAX_PODS: Final = 1024
_LENGTH: Final = 4


class ReportError(SlicewiseError):
    """What the other end sent is no report, or it refused ours."""


class ReportDelta(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag="change"
):
    """What is different from the last message of this connection."""

    gpus: tuple[GpuReport, ...] = ()
    """GPUs that are new or changed."""
    gpus_lost: tuple[str, ...] = ()
    """UUIDs of GPUs that are gone."""
    pods: tuple[PodReport, ...] = ()
    """Pods that are new or changed."""
    pods_lost: tuple[PodKey, ...] = ()
    """Pods that are gone."""
    driver: str | None = None
    why: str | None = None
    processes: tuple[ProcessReport, ...] | None = None
    """All that belong to no container holding their GPU; None when none of them changed."""
    sampled_at: float | None = None
    """When use was measured; 0 when it is not known any more, None when that did not change."""


Message = NodeReport | ReportDelta
_DECODER: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)
_ENCODER: Final = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    body = _ENCODER.encode(message)
    return len(body).to_bytes(_LENGTH, "big") + body


def find_delta(old: NodeReport, new: NodeReport) -> ReportDelta | None:
    """What makes the new report of the old one; None when they are alike."""
    if old == new:
        return None
    gpus = {gpu.uuid: gpu for gpu in old.gpus}
    pods = {pod.key: pod for pod in old.pods}
    new_gpus = {gpu.uuid for gpu in new.gpus}
    new_pods = {pod.key for pod in new.pods}
    delta = ReportDelta(
        gpus=tuple(gpu for gpu in new.gpus if gpus.get(gpu.uuid) != gpu),
        gpus_lost=tuple(uuid for uuid in gpus if uuid not in new_gpus),
        pods=tuple(pod for pod in new.pods if pods.get(pod.key) != pod),
        pods_lost=tuple(key for key in pods if key not in new_pods),
        driver=None if new.driver == old.driver else new.driver,
        why=None if new.why == old.why else new.why,
        processes=None if new.processes == old.processes else new.processes,
        sampled_at=None if new.sampled_at == old.sampled_at else new.sampled_at or 0.0,
    )
    return None if delta == ReportDelta() else delta


def check_size(report: NodeReport) -> NodeReport:
    """The report; raises ReportError when no node has so many GPUs or pods."""
    for what, found, most in (("GPUs", report.gpus, MAX_GPUS), ("pods", report.pods, MAX_PODS)):
        if len(found) > most:
            raise ReportError(f"report of {len(found)} {what}: expected at most {most}")
    return report


def apply_delta(report: NodeReport, delta: ReportDelta) -> NodeReport:
    """The report with a delta applied, in a stable order; what did not change is shared."""
    changed = msgspec.structs.replace(
        report,
        gpus=_apply_gpus(report.gpus, delta),
        pods=_apply_pods(report.pods, delta),
        driver=report.driver if delta.driver is None else delta.driver,
        why=report.why if delta.why is None else delta.why,
        processes=report.processes if delta.processes is None else delta.processes,
        sampled_at=report.sampled_at if delta.sampled_at is None else delta.sampled_at or None,
    )
    return check_size(changed)


def _apply_gpus(known: tuple[GpuReport, ...], delta: ReportDelta) -> tuple[GpuReport, ...]:
    if not delta.gpus and not delta.gpus_lost:
        return known
    gpus = {gpu.uuid: gpu for gpu in known}
    for uuid in delta.gpus_lost:
        gpus.pop(uuid, None)
    gpus.update((gpu.uuid, gpu) for gpu in delta.gpus)
    return tuple(sorted(gpus.values(), key=lambda gpu: (gpu.index, gpu.uuid)))


def _apply_pods(known: tuple[PodReport, ...], delta: ReportDelta) -> tuple[PodReport, ...]:
    if not delta.pods and not delta.pods_lost:
        return known
    pods = {pod.key: pod for pod in known}
    for key in delta.pods_lost:
        pods.pop(key, None)
    pods.update((pod.key, pod) for pod in delta.pods)
    return tuple(pods[key] for key in sorted(pods))


class FrameReader:
    """Cuts what arrives into messages."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterable[Message | None]:
        """The messages that are whole now, None for a heartbeat; raises ReportError on nonsense."""
        # Nearly everything that ever arrives is one heartbeat.
        if data == HEARTBEAT and not self._rest:
            return (None,)
        self._rest += data
        return self._cut(self._rest)

    def _cut(self, data: bytearray) -> Iterable[Message | None]:
        found: list[Message | None] = []
        at = 0
        while len(data) - at >= _LENGTH:
            length = int.from_bytes(data[at : at + _LENGTH], "big")
            if length > MAX_FRAME:
                raise ReportError(f"frame of {length} bytes: expected at most {MAX_FRAME}")
            start = at + _LENGTH
            if len(data) - start < length:
                break
            found.append(_decode(bytes(data[start : start + length])) if length else None)
            at = start + length
        del data[:at]
        return found


def _decode(body: bytes) -> Message:
    try:
        return _DECODER.decode(body)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"frame cannot be read: {error}") from error
