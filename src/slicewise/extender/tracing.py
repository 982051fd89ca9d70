"""Spans of every request and of its stages, for those who run an OpenTelemetry collector.

OpenTelemetry is imported only when tracing is on, so that it costs nothing otherwise.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from slicewise import __version__
from slicewise.extender.metrics import CallCounts, Metrics
from slicewise.httpd import Answer, Handler, HttpRequest
from slicewise.model import SlicewiseError
from slicewise.state.cluster_state import ClusterState

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

SERVICE: Final = "slicewise-extender"
# The standard's own variables; the exporter reads what they say by itself.
VARIABLES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_FLUSH_SECONDS: Final = 2.0
# Scrapes are frequent and say nothing about schedulers.
_UNTRACED: Final = frozenset({"/metrics", "/version", "/debug/pprof"})


class TracingError(SlicewiseError):
    """Tracing was asked for and cannot be had."""


class Provider(Protocol):
    """What makes tracers and sends their spans away."""

    def get_tracer(self, name: str, version: str) -> Any:
        """A tracer of this name."""

    def shutdown(self) -> None:
        """Flush, and stop."""


class Tracing:
    """One provider of spans, and what is traced with it."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._tracer: Tracer = provider.get_tracer(SERVICE, __version__)

    def watch(self, state: ClusterState, calls: CallCounts | None) -> Metrics:
        """Metrics whose stages are spans as well."""
        return TracedMetrics(self._tracer, state, calls)

    def wrap(self, handler: Handler) -> Handler:
        """The handler with a span around every request, under its caller's if it names one."""
        from opentelemetry.propagate import extract  # noqa: PLC0415
        from opentelemetry.trace import SpanKind  # noqa: PLC0415

        async def handle(request: HttpRequest) -> Answer:
            if request.path in _UNTRACED:
                return await handler(request)
            with self._tracer.start_as_current_span(
                f"{request.method} {request.path}",
                context=extract(dict(request.headers)),
                kind=SpanKind.SERVER,
                attributes={
                    "http.request.method": request.method,
                    "url.path": request.path,
                    "http.request.body.size": len(request.body),
                },
            ) as span:
                answer = await handler(request)
                status = getattr(answer, "status", None)
                if status is not None:
                    span.set_attribute("http.response.status_code", status)
                return answer

        return handle

    def close(self) -> None:
        """Flush and stop; an unreachable collector is not waited for long."""
        # The exporter retries for many seconds, longer than a stop should take.
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(_FLUSH_SECONDS)


class TracedMetrics(Metrics):
    """Metrics that tell the collector what they count and time."""

    def __init__(
        self, tracer: "Tracer", state: ClusterState, calls: CallCounts | None = None
    ) -> None:
        super().__init__(state, calls)
        self._tracer = tracer

    @contextmanager
    def stage(self, verb: str, stage: str) -> Iterator[None]:
        """Time the block as one stage of a verb, and trace it."""
        with self._tracer.start_as_current_span(f"{verb}.{stage}"), super().stage(verb, stage):
            yield

    def decided(self, verb: str, reason: str, count: int = 1) -> None:
        """Count an answer, and note it on the span of the request."""
        super().decided(verb, reason, count)
        from opentelemetry.trace import get_current_span  # noqa: PLC0415

        get_current_span().set_attribute(f"slicewise.{verb}.{reason}", count)


class NoTracing:
    def watch(self, state: ClusterState, calls: CallCounts | None) -> Metrics:
        return Metrics(state, calls)

    def wrap(self, handler: Handler) -> Handler:
        return handler

    def close(self) -> None:
        """Nothing."""


def open_tracing(endpoint: str | None) -> Tracing | NoTracing:
    """Tracing to a collector at this address; where the standard's variables say if it is empty."""
    if endpoint is None:
        return NoTracing()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise TracingError(
            f"cannot trace: {error}; install slicewise[otel] or leave --otlp-endpoint out"
        ) from error
    url = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None
    about = {"service.name": SERVICE, "service.version": __version__}
    provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
    return Tracing(provider)
