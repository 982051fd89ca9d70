import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

import builders
from nodeagent import scenes
from slicewise import __version__
from slicewise.httpd import HttpRequest, HttpResponse
from slicewise.nodeagent.node_pods import NodePod
from slicewise.nodeagent.pages import AgentPages
from slicewise.nodeagent.usage.node_usage import NodeUsage, UsageSample, measure
from slicewise.nodeagent.usage.sampler import SamplingStats

GOLDEN = Path(__file__).parent / "golden"
PAGES = ("/metrics", "/metric", "/usage", "/usage/gpus")


class FakeMeter:
    """The usage of a pods and a reading, with a tally that stands still."""

    def __init__(self, *pods: NodePod, reading: UsageSample | None = None) -> None:
        self.pods = scenes.FakeNodePods(list(pods))
        self.reading = reading
        self.tally = SamplingStats(samples=3, failures=1, last_seconds=0.25)

    def links(self) -> None:
        return None

    def usage(self) -> NodeUsage:
        return measure("n0", self.pods.gpus(), self.pods.pods(), self.reading)


def get(pages: AgentPages, path: str, method: str = "GET") -> HttpResponse:
    async def gone() -> None:
        await asyncio.Event().wait()

    return asyncio.run(pages.router.handle(HttpRequest(method, path, {}, {}, b"", gone)))


def read_series(text: bytes) -> dict[tuple[str, frozenset], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


TRAIN = scenes.node_pod(
    "train",
    {"main": [builders.piece(0, 30, 4096), builders.piece(1, 30, 4096)], "log": []},
    user="ada",
    cluster="blue",
)
SERVE = scenes.node_pod("serve", {"c0": [builders.piece(1, 0, 2048)]}, namespace="web")


@pytest.fixture
def meter():
    """A busy pod on two GPUs, an idle one, a stray and a trespass."""
    loads = {
        "GPU-0": scenes.load(
            scenes.process(11, 1000, 20),
            scenes.process(12, 24, 5),
            scenes.process(99, 300, 1),
            memory=1500,
            temperature=41,
            power_milliwatts=60500,
        ),
        "GPU-1": scenes.load(scenes.process(11, 512, 40), scenes.process(31, 8, 0)),
    }
    web = scenes.node_pod("proxy", {"c0": []}, asks=False, namespace="web")
    busy = [scenes.inside(TRAIN, "main")]
    seen = {11: busy, 12: busy, 99: [], 31: [scenes.inside(web)]}
    return FakeMeter(TRAIN, SERVE, web, reading=scenes.reading(loads, seen))


@pytest.mark.parametrize("path", PAGES)
def test_every_page_reads_as_recorded(meter, path):
    body = get(AgentPages(meter), path).body
    name = path.strip("/").replace("/", "-")
    if path.startswith("/usage"):
        expected = json.loads((GOLDEN / f"{name}.json").read_text())
        assert json.loads(body) == expected
    else:
        assert body.decode() == (GOLDEN / f"{name}.txt").read_text()


def test_the_singular_page_is_part_of_the_plural_one(meter):
    pages = AgentPages(meter)
    manager, every = (read_series(get(pages, path).body) for path in ("/metric", "/metrics"))

    assert manager
    assert manager.items() <= every.items()


def test_no_name_is_written_twice(meter):
    lines = get(AgentPages(meter), "/metrics").body.decode().splitlines()
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]

    assert len(names) == len(set(names))


def test_other_parts_of_the_agent_add_their_metrics(meter):
    registry = CollectorRegistry()
    Counter("slicewise_agent_allocations", "Allocate calls.", registry=registry).inc()

    assert (
        b"slicewise_agent_allocations_total 1.0"
        in get(AgentPages(meter, more=[registry]), "/metrics").body
    )


def test_an_idle_container_reads_zero():
    meter = FakeMeter(SERVE, reading=scenes.reading({"GPU-1": scenes.load()}))
    series = read_series(get(AgentPages(meter), "/metric").body)
    used = {
        dict(labels)["gpu"]: value
        for (name, labels), value in series.items()
        if name == "container_gpu_utilization"
    }

    assert used == {"gpu1": 0, "total": 0}


def test_nothing_is_said_of_use_while_the_driver_is_silent():
    text = get(AgentPages(FakeMeter(SERVE)), "/metrics").body
    names = {name for name, _ in read_series(text)}

    assert "slicewise_container_gpu_promised_ratio" in names
    assert "container_request_gpu_memory" in names
    assert not {name for name in names if "utilization_ratio" in name or "_used_" in name}
    assert "container_gpu_utilization" not in names


def test_without_pods_usage_is_an_empty_object():
    assert get(AgentPages(FakeMeter()), "/usage").body == b"{}"


@given(st.lists(st.integers(0, 5), unique=True), st.lists(st.integers(0, 5), unique=True))
def test_series_come_with_the_allocation_and_go_with_the_container(before, after):
    meter = FakeMeter(reading=scenes.reading({"GPU-0": scenes.load(), "GPU-1": scenes.load()}))
    pages = AgentPages(meter)
    for present in (before, after):
        meter.pods.held = [scenes.node_pod(f"p{at}") for at in present]
        pods = {
            pod
            for _, labels in read_series(get(pages, "/metrics").body)
            if (pod := dict(labels).get("pod") or dict(labels).get("pod_name"))
        }
        assert pods == {f"p{at}" for at in present}


def test_sums_over_containers_and_strays_match_the_gpu(meter):
    series = read_series(get(AgentPages(meter), "/metrics").body)
    parts = [
        value
        for (name, labels), value in series.items()
        if name in ("slicewise_container_gpu_memory_used_bytes", "slicewise_gpu_stray_memory_bytes")
        and ("gpu", "0") in labels
    ]

    assert sum(parts) == (1000 + 24 + 300) << 20


def test_the_version_is_told_as_json():
    assert json.loads(get(AgentPages(FakeMeter()), "/version").body) == {"version": __version__}


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        pytest.param("/usage/", "GET", 200, id="slash-at-the-end"),
        pytest.param("//metric", "GET", 200, id="two-slashes"),
        pytest.param("/metrics", "HEAD", 200, id="head"),
        pytest.param("/metrics", "POST", 405, id="post"),
        pytest.param("/", "GET", 404, id="root"),
        pytest.param("/usage/../metrics", "GET", 404, id="no-way-around"),
    ],
)
def test_paths_answer(path, method, status):
    assert get(AgentPages(FakeMeter()), path, method).status == status


@pytest.mark.parametrize(("path", "status"), [("/metrics", 200), ("/metric", 200), ("/usage", 404)])
def test_listener_without_tls_has_figures_and_no_other_page(path, status):
    pages = AgentPages(FakeMeter(TRAIN))

    async def ask():
        request = HttpRequest("GET", path, {}, {}, b"", asyncio.Event().wait)
        return await pages.figures.handle(request)

    assert asyncio.run(ask()).status == status
