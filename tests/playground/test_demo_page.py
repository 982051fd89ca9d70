import asyncio
import http.client
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from slicewise.dashboard.usage import MeasuredPod
from slicewise.dialects import GPUS, write_gpus
from slicewise.model import NodeState
from slicewise_playground.cluster import Playground
from slicewise_playground.demo.demo_page import check_page, serve_page, simulate_use
from slicewise_playground.demo.service_thread import serving


@given(st.floats(0, 1e9), st.integers(1, 100), st.integers(0, 40960))
def test_simulated_use_is_never_more_than_what_is_held(now, cores, memory):
    state = NodeState.empty(builders.node("n0")).hold(
        builders.holding("u0", builders.piece(1, cores, memory))
    )

    use = simulate_use(state, now)

    assert (use.gpus[0].uuid, use.gpus[0].cores, use.gpus[0].memory) == ("GPU-n0-0", 0, 0)
    (pod,) = use.pods
    assert (pod.pod, pod.uuid) == ("default/u0", "GPU-n0-1")
    assert 0 <= pod.cores <= cores
    assert 0 <= pod.memory <= memory


def test_pod_that_is_measured_keeps_what_it_was_measured_to_use():
    state = NodeState.empty(builders.node("n0"))
    for uid, gpu in (("u0", 0), ("u1", 1)):
        state = state.hold(builders.holding(uid, builders.piece(gpu, 50, 4096)))
    measured = MeasuredPod("default/u0", "GPU-n0-0", 49, 4000)

    use = simulate_use(state, 0.0, [measured])

    assert use.pods[0] == measured
    assert (use.gpus[0].cores, use.gpus[0].memory) == (49, 4000)
    assert use.pods[1].pod == "default/u1"


def test_pod_whose_gpus_nobody_knows_is_given_no_use():
    holding = builders.holding("u0", builders.piece(0), builders.piece(1), certain=False)

    assert simulate_use(NodeState.empty(builders.node("n0")).hold(holding), 0.0).pods == ()


@pytest.fixture
def cluster():
    with Playground() as playground:
        meta = {"name": "n0", "annotations": {GPUS: write_gpus(builders.node("n0"))}}
        playground.create("nodes", {"metadata": meta})
        yield playground


def test_page_of_the_demo_is_found_well(cluster):
    with serve_page(cluster.url) as url:
        assert check_page(url, 1) == []
        assert check_page(url, 2) == ["the page shows 1 nodes of 2"]
        assert check_page(url, 1, ["default/p"]) == ["the page shows no use of default/p"]


def test_page_that_is_gone_is_told(cluster):
    with serve_page(cluster.url) as url:
        pass

    (complaint,) = check_page(url, 1)

    assert "cannot be read" in complaint


def test_page_takes_another_port_when_its_own_is_taken(cluster):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serve_page(cluster.url, port=port) as url:
            assert not url.endswith(f":{port}")
            line = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
            line.request("GET", "/")
            assert line.getresponse().status == 200
            line.close()


def test_service_that_cannot_start_says_why():
    async def serve(stop, started):
        raise OSError("no such luck")

    with pytest.raises(OSError, match="no such luck"), serving("broken", serve):
        raise AssertionError("nothing was served")


def test_service_is_stopped_when_it_is_no_longer_needed():
    ended = []

    async def serve(stop, started):
        started("here")
        await stop.wait()
        ended.append(asyncio.get_running_loop().is_running())

    with serving("brief", serve) as address:
        assert address == "here"
        assert ended == []

    assert ended == [True]
