"""Every route over real HTTP, with fakes behind."""

import asyncio
import http.client
import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from extender import bodies
from fakes.cluster import FakeState, FakeWriter
from slicewise import __version__
from slicewise.dialects import DEFAULT
from slicewise.extender.handlers import Extender
from slicewise.extender.routes import build_handler
from slicewise.extender.server import ExtenderServer
from slicewise.httpd import HttpRequest, ServerSettings

SHARE = {"slicewise.io/cores": 30, "slicewise.io/memory": 4096}
JSON = {"Content-Type": "application/json"}
SCHEDULE = "/apis/metrics.nvidia.com/v1alpha1/schedule"
FILTERS = ["/filter", "/filter-dryrun", "/scheduler/filter", "/gpushare-scheduler/filter"]
BINDS = ["/bind", "/scheduler/bind", "/gpushare-scheduler/bind"]


class Running:
    """A service on a thread of its own, and a client."""

    def __init__(self, tracing=None, **options):
        if tracing is not None:
            options["wrap"] = tracing.wrap
        self.state = FakeState(builders.node("a"), builders.node("b", 4))
        self.writer = FakeWriter()
        metrics = tracing and tracing.watch(self.state, None)
        self.extender = Extender(self.state, self.writer, metrics=metrics)
        self.service = ExtenderServer(
            self.extender, ServerSettings(max_body_bytes=1 << 20), **options
        )
        self._started, self._stop = threading.Event(), None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await self.service.start()
        self._started.set()
        await self._stop.wait()
        await self.service.stop()

    def __enter__(self):
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def ask(self, path, body=None, method=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.service.server.port, timeout=20)
        try:
            verb = method or ("GET" if body is None else "POST")
            connection.request(verb, path, body, {**JSON, **(headers or {})})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def post(self, path, body):
        status, answer = self.ask(path, body)
        assert status == 200, answer
        return json.loads(answer)

    def add(self, limits=SHARE, number=0, **facts):
        pod = builders.pod(limits=limits, uid=f"u{number}", name=f"p{number}", **facts)
        self.writer.add(pod)
        self.state.see(pod)


@pytest.fixture(scope="module")
def shared():
    """A service that no test changes."""
    with Running() as running:
        yield running


@pytest.fixture
def own():
    with Running() as running:
        yield running


@pytest.mark.parametrize("path", [*FILTERS, f"{SCHEDULE}/filter", "//filter", "/filter/"])
def test_filter_answers_on_every_systems_route(shared, path):
    reply = shared.post(path, bodies.args(bodies.pod(SHARE), ["b", "x", "a"]))

    assert reply["NodeNames"] == ["b", "a"]
    assert reply["Nodes"] is None
    assert list(reply["FailedNodes"]) == ["x"]
    assert reply["Error"] == ""


@pytest.mark.parametrize("path", FILTERS)
def test_filter_answers_node_objects_in_kind(shared, path):
    nodes = [bodies.node("x"), bodies.node("a")]

    reply = shared.post(path, bodies.args(bodies.pod(SHARE), nodes=nodes))

    assert reply["NodeNames"] is None
    assert reply["Nodes"]["items"] == nodes[1:]


@pytest.mark.parametrize("path", ["/prioritize", "/scheduler/priorities"])
def test_priorities_are_a_bare_list_of_whole_numbers(shared, path):
    scores = shared.post(path, bodies.args(bodies.pod(SHARE), ["a", "b"]))

    assert [each["Host"] for each in scores] == ["a", "b"]
    assert all(type(each["Score"]) is int and 0 <= each["Score"] <= 10 for each in scores)


def test_schedule_prioritize_counts_free_gpus(shared):
    pod = bodies.pod({"nvidia.com/gpu": 1}, annotations={"nvidia.com/gpu.model": "A100"})

    scores = shared.post(f"{SCHEDULE}/prioritize", bodies.args(pod, ["a", "b"]))

    assert scores == [{"Host": "a", "Score": 2}, {"Host": "b", "Score": 4}]


@pytest.mark.parametrize("path", BINDS)
def test_bind_answers_on_every_systems_route(own, path):
    own.add()

    assert own.post(path, bodies.binding("a")) == {"Error": ""}
    assert own.writer.pods["default", "p0"].node == "a"


@pytest.mark.parametrize("path", BINDS)
def test_bind_errors_come_with_200_so_that_their_text_arrives(shared, path):
    reply = shared.post(path, bodies.binding("a", "nobody"))

    assert reply == {"Error": "pod default/nobody does not exist"}


@pytest.mark.parametrize("path", ["/preempt", f"{SCHEDULE}/preempt"])
def test_preempt_answers_in_the_short_form(shared, path):
    victims = {"a": {"Pods": [{"UID": "v"}], "NumPDBViolations": 0}}
    body = {"Pod": bodies.pod(SHARE, priority=5), "NodeNameToMetaVictims": victims}

    assert shared.post(path, json.dumps(body)) == {"NodeNameToMetaVictims": victims}


def test_predicates_commit_and_leave_one_node(own):
    limits = {"nvidia.com/vcuda-core": 30, "nvidia.com/vcuda-memory": 1000}
    own.add(limits)

    reply = own.post(
        "/scheduler/predicates", bodies.args(bodies.pod(limits), nodes=[bodies.node("a")])
    )

    assert [each["metadata"]["name"] for each in reply["Nodes"]["items"]] == ["a"]
    assert own.writer.calls["annotate_pod"] == 1


def test_scheduler_filter_commits_when_told():
    limits = {"nvidia.com/vcuda-core": 30, "nvidia.com/vcuda-memory": 1000}
    with Running(commit_in_filter=True) as running:
        running.add(limits)
        reply = running.post("/scheduler/filter", bodies.args(bodies.pod(limits), ["a", "b"]))

    assert len(reply["NodeNames"]) == 1
    assert running.writer.calls["annotate_pod"] == 1


def test_inspect_shows_gpushare_units(own):
    own.add({"aliyun.com/gpu-mem": 3})
    own.post("/gpushare-scheduler/bind", bodies.binding("a"))

    status, body = own.ask("/gpushare-scheduler/inspect/a")

    pods = [{"name": "p0", "namespace": "default", "usedGPU": 3}]
    assert status == 200
    assert json.loads(body) == {
        "nodes": [
            {
                "name": "a",
                "totalGPU": 80,
                "usedGPU": 3,
                "devs": [
                    {"id": 0, "totalGPU": 40, "usedGPU": 3, "pods": pods},
                    {"id": 1, "totalGPU": 40, "usedGPU": 0, "pods": []},
                ],
            }
        ]
    }


def test_inspect_lists_nodes_by_name_and_says_who_is_unknown(shared):
    _, body = shared.ask("/gpushare-scheduler/inspect")
    status, unknown = shared.ask("/gpushare-scheduler/inspect/zz")

    assert [node["name"] for node in json.loads(body)["nodes"]] == ["a", "b"]
    assert (status, json.loads(unknown)) == (200, {"nodes": [], "error": 'node "zz" not found'})


def test_status_is_elastics_document_inside_a_text(shared):
    _, body = shared.ask("/scheduler/status")

    outer = json.loads(body)
    assert sorted(outer) == ["elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"]
    assert json.loads(outer["elasticgpu.io/gpu-core"])["a"][0] == {
        "CoreAvailable": 100,
        "MemoryAvailable": 40960,
        "CoreTotal": 100,
        "MemoryTotal": 40960,
    }


def test_explain_names_gpus_and_the_smallest_change(own):
    own.add({"slicewise.io/cores": 70, "slicewise.io/memory": 90000})

    status, body = own.ask("/explain?pod=default/p0")

    told = json.loads(body)
    assert status == 200
    assert told["smallestChange"] == {
        "node": "a",
        "change": "ask for 40960 MiB of each GPU instead of 90000, as slicewise.io/memory: 40960",
        "distance": 0.5449,
        "ask": {"memory": 40960},
        "limits": {"slicewise.io/memory": 40960},
    }
    assert told["nodes"][0]["gpus"][0]["missing"] == ["49040 MiB"]
    assert told["nodes"][0]["reason"] == "GpuTooSmall"


def test_explain_says_who_is_not_there(shared):
    assert shared.ask("/explain?pod=default/nobody")[0] == 404
    assert shared.ask("/explain")[0] == 400


def test_metrics_tell_latency_decisions_and_the_ledger(own):
    own.post("/filter", bodies.args(bodies.pod(SHARE), ["a", "x"]))

    _, body = own.ask("/metrics")

    text = body.decode()
    assert 'slicewise_extender_seconds_count{stage="decide",verb="filter"} 1.0' in text
    assert 'slicewise_extender_decisions_total{reason="UnknownNode",verb="filter"} 1.0' in text
    assert 'slicewise_extender_requests_total{code="200",route="/filter"} 1.0' in text
    assert "slicewise_ledger_gpus 6.0" in text


def test_standby_is_ready_and_names_the_leader_when_it_is_asked(own):
    own.state.ready, own.state.why = False, "it does not lead; other-7 does"

    assert own.ask("/readyz") == (200, b"ok")
    assert own.ask("/leadz") == (503, b"not leading: it does not lead; other-7 does\n")
    asked = bodies.args(bodies.pod(SHARE), ["a"])
    assert "it does not lead; other-7 does" in own.post("/filter", asked)["Error"]
    own.add()
    assert "it does not lead; other-7 does" in own.post("/bind", bodies.binding("a"))["Error"]


def test_ready_only_when_the_state_is(own):
    own.state.ready, own.state.outdated = False, "not everything has been listed yet"

    assert own.ask("/readyz")[0] == 503
    assert own.ask("/leadz")[0] == 503
    assert own.ask("/healthz") == (200, b"ok")
    assert "retry later" in own.post("/filter", bodies.args(bodies.pod(SHARE), ["a"]))["Error"]
    assert own.ask("/explain", bodies.args(bodies.pod(SHARE), ["a"]))[0] == 503


def test_decisions_stop_with_the_reason_while_a_watch_is_stale(own):
    own.state.ready = False
    own.state.why = own.state.outdated = "watch of pods stale for 47 s"
    asked = bodies.args(bodies.pod(SHARE), ["a"])

    assert own.ask("/readyz") == (503, b"not ready: watch of pods stale for 47 s\n")
    assert own.state.why in own.post("/filter", asked)["Error"]
    own.add()
    assert own.state.why in own.post("/bind", bodies.binding("a"))["Error"]


def test_liveness_fails_for_good_when_a_task_has_ended(own):
    assert own.ask("/livez") == (200, b"ok")
    own.state.failure = "task watch of pods has ended: it returned"

    assert own.ask("/livez") == (500, b"broken: task watch of pods has ended: it returned\n")
    assert own.ask("/readyz")[0] == 503


def test_version_is_plain_text(shared):
    assert shared.ask("/version") == (200, __version__.encode())


def test_unknown_paths_and_methods_are_refused(shared):
    assert shared.ask("/nowhere")[0] == 404
    assert shared.ask("/filter")[0] == 405
    assert shared.ask("/filter", b"x" * (2 << 20))[0] == 413


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *[(path, 200) for path in (*FILTERS, *BINDS, "/scheduler/predicates")],
        *[(path, 400) for path in ("/prioritize", "/preempt", "/scheduler/priorities")],
        *[(f"{SCHEDULE}/{verb}", 400) for verb in ("filter", "prioritize", "preempt")],
        ("/explain", 400),
    ],
)
def test_broken_bodies_are_answered_as_documented(shared, path, status):
    answered, body = shared.ask(path, b'{"Pod": 3')

    assert answered == status
    assert b"body: " in body


POSTS = [
    *FILTERS,
    *BINDS,
    "/prioritize",
    "/preempt",
    "/explain",
    "/scheduler/predicates",
    *(f"{SCHEDULE}/{verb}" for verb in ("filter", "prioritize", "preempt")),
]
KEYS = [
    "Pod",
    "NodeNames",
    "Nodes",
    "items",
    "metadata",
    "name",
    "uid",
    "annotations",
    "spec",
    "containers",
    "resources",
    "limits",
    "slicewise.io/gpu",
    "aliyun.com/gpu-mem",
    "slicewise.io/policy",
    "PodName",
    "PodNamespace",
    "PodUID",
    "Node",
    "UID",
    "Pods",
    "NodeNameToVictims",
    "NodeNameToMetaVictims",
    "a",
]
leaves = st.none() | st.integers() | st.text(max_size=6) | st.sampled_from(["a", "1e400", "-1"])
hostile = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=25,
)
amounts = st.dictionaries(st.sampled_from(sorted(DEFAULT.resources)), leaves, max_size=3)
words = st.dictionaries(
    st.sampled_from(["slicewise.io/policy", "slicewise.io/shares.c0", "nvidia.com/gpu.model"]),
    st.sampled_from(["spread", "whole", "30%:5", "", "A100", "node=fgd:x"]),
)
plausible = st.builds(
    lambda limits, notes, names: {
        "Pod": bodies.pod(limits, annotations=notes),
        "NodeNames": names,
        "NodeNameToMetaVictims": {name: {"Pods": [{"UID": "v"}]} for name in names},
    },
    amounts,
    words,
    st.lists(st.sampled_from(["a", "b", "x"])),
)


@settings(max_examples=300)
@given(
    st.sampled_from(POSTS),
    (hostile | plausible).map(json.dumps).map(str.encode) | st.binary(max_size=99),
)
def test_hostile_bodies_never_break_the_service(path, body):
    handler = build_handler(Extender(FakeState(builders.node("a")), FakeWriter()))
    request = HttpRequest("POST", path, {}, {}, body, gone=asyncio.Event().wait)

    assert asyncio.run(handler(request)).status in (200, 400)


def test_one_that_is_not_ready_lets_go_of_the_schedulers_connection(own):
    own.state.ready = False
    connection = http.client.HTTPConnection("127.0.0.1", own.service.server.port, timeout=20)
    try:
        connection.request("POST", "/filter", bodies.args(bodies.pod(SHARE), ["a"]), JSON)
        response = connection.getresponse()

        assert response.getheader("connection") == "close"
        assert "does not lead" in json.loads(response.read())["Error"]
    finally:
        connection.close()
