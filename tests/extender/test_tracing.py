"""Spans that a collector on loopback receives, and what happens without one."""

import gzip
import http.server
import os
import subprocess
import sys
import threading
import time

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from extender import bodies
from extender.commanding import Command, gpu_playground
from extender.living import wait_until
from extender.test_handlers import Running
from extender.test_hostile import ask, wait_ready
from fakes.cluster import FakeState, FakeWriter
from slicewise.extender.handlers import Extender
from slicewise.extender.metrics import Metrics
from slicewise.extender.tracing import Tracing

SHARE = {"slicewise.io/cores": 30, "slicewise.io/memory": 4096}
BODY = bodies.args(bodies.pod(SHARE), names=["a", "n0"])


class Collector(http.server.ThreadingHTTPServer):
    """Takes spans as OTLP over HTTP."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Taking)
        self.spans = []
        self.services = set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class _Taking(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        sent = ExportTraceServiceRequest.FromString(content)
        for resource in sent.resource_spans:
            named = {each.key: each.value.string_value for each in resource.resource.attributes}
            self.server.services.add(named["service.name"])
            for scope in resource.scope_spans:
                self.server.spans.extend(scope.spans)
        self.send_response(200 if self.path == "/v1/traces" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def traced():
    """A service whose spans stay in memory."""
    provider, kept = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracing = Tracing(provider)
    with Running(tracing=tracing) as running:
        running.kept = kept
        yield running
    tracing.close()


def test_stages_are_spans_inside_the_span_of_their_request(traced):
    assert traced.ask("/filter", BODY)[0] == 200

    spans = {span.name: span for span in traced.kept.get_finished_spans()}
    assert spans.keys() == {"POST /filter", "filter.decode", "filter.decide", "filter.encode"}
    outer = spans["POST /filter"]
    assert outer.attributes["http.response.status_code"] == 200
    assert outer.attributes["slicewise.filter.Fits"] == 1
    for name, span in spans.items():
        if name != "POST /filter":
            assert span.parent.span_id == outer.context.span_id


@pytest.mark.parametrize(
    ("path", "body", "span"),
    [
        ("/prioritize", BODY, "prioritize.decide"),
        ("/bind", bodies.binding("a"), "bind.write"),
        ("/preempt", b'{"Pod":{"metadata":{"name":"p0"}}}', "preempt.decide"),
    ],
)
def test_every_verb_is_traced(traced, path, body, span):
    traced.ask(path, body)

    assert span in {each.name for each in traced.kept.get_finished_spans()}


def test_callers_trace_is_continued(traced):
    trace = "0af7651916cd43dd8448eb211c80319c"
    caller = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    traced.ask("/filter", BODY, headers=caller)

    assert {f"{span.context.trace_id:x}" for span in traced.kept.get_finished_spans()} == {
        trace.lstrip("0")
    }


def test_metrics_count_as_without_tracing(traced):
    traced.ask("/filter", BODY)

    text = traced.ask("/metrics")[1].decode()
    assert 'slicewise_extender_seconds_count{stage="decide",verb="filter"} 1.0' in text
    assert "GET /metrics" not in {span.name for span in traced.kept.get_finished_spans()}


@pytest.mark.parametrize("by_flag", [True, False], ids=["flag", "environment"])
def test_command_sends_its_spans_to_the_collector(by_flag):
    with Collector() as collector, gpu_playground() as playground:
        flags = [f"--otlp-endpoint={collector.url}"] if by_flag else []
        environment = {**os.environ, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        if not by_flag:
            environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
        with Command(
            playground.url, "--log-level=error", *flags, environment=environment
        ) as command:
            wait_ready(command)
            assert ask(command, "/filter", BODY)[0] == 200

            wait_until(lambda: "filter.decide" in {span.name for span in collector.spans})
    assert collector.services == {"slicewise-extender"}


def test_collector_that_is_gone_disturbs_nobody():
    with gpu_playground() as playground:
        flags = ["--otlp-endpoint=http://127.0.0.1:9", "--log-level=error"]
        with Command(playground.url, *flags) as command:
            wait_ready(command)

            assert all(ask(command, "/filter", BODY)[0] == 200 for _ in range(5))
            began = time.monotonic()
    assert time.monotonic() - began < 8


def run_python(code, **variables):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_nothing_of_opentelemetry_is_imported_while_tracing_is_off():
    code = (
        "import sys, slicewise.cli.main, slicewise.cli.extender, slicewise.extender.tracing\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )

    assert run_python(code).stdout.strip() == "[]"


def test_extra_that_is_not_installed_is_named():
    code = (
        "import sys\n"
        "sys.modules['opentelemetry.sdk.trace'] = None\n"
        "from slicewise.cli.main import main\n"
        "main(['extender', '--master=http://127.0.0.1:9', '--otlp-endpoint=http://127.0.0.1:9',"
        " '--address=127.0.0.1:0'])"
    )

    ended = run_python(code)

    assert ended.returncode == 1
    assert "install slicewise[otel]" in ended.stderr


def test_untraced_extender_pays_for_no_spans():
    assert type(Extender(FakeState(), FakeWriter()).metrics) is Metrics
