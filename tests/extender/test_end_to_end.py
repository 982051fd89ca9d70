"""The whole extender against the embedded API: informers, decisions, one write, faults."""

import json
import threading
from datetime import UTC, datetime

import pytest

from extender import bodies
from extender.living import Cluster, wait_until
from slicewise.kube.leading.fence import LeaseTiming
from slicewise.kube.leading.lease import OTHER_DECIDER
from slicewise_playground.api.faults import InjectedFault


@pytest.fixture
def cluster():
    with Cluster() as cluster:
        yield cluster.wait_ready()


@pytest.mark.parametrize(
    ("route", "limits", "annotations"),
    [
        pytest.param(
            "",
            {"slicewise.io/cores": "30", "slicewise.io/memory": "4096"},
            {},
            id="slicewise",
        ),
        pytest.param(
            "/scheduler",
            {"nvidia.com/vcuda-core": "30", "nvidia.com/vcuda-memory": "1000"},
            {"nvidia.com/predicate-gpu-idx-0": "0", "nvidia.com/gpu-assigned": "false"},
            id="tkestack",
        ),
        pytest.param(
            "/gpushare-scheduler",
            {"aliyun.com/gpu-mem": "3"},
            {"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_POD": "3"},
            id="gpushare",
        ),
        pytest.param(
            "/scheduler",
            {"elasticgpu.io/gpu-core": "20", "elasticgpu.io/gpu-memory": "256"},
            {"elasticgpu.io/container-c0": "0", "elasticgpu.io/assumed": "true"},
            id="elastic",
        ),
    ],
)
def test_pod_is_bound_with_its_dialects_record_in_one_write(cluster, route, limits, annotations):
    pod = cluster.add("p", limits)
    version = int(pod["metadata"]["resourceVersion"])

    bound = cluster.schedule(pod, route)

    assert bound["spec"]["nodeName"] == "n0"
    assert annotations.items() <= bound["metadata"]["annotations"].items()
    assert '"c0":[[0,"GPU-n0-0",' in bound["metadata"]["annotations"]["slicewise.io/allocation"]
    assert len(bound["metadata"]["annotations"]["slicewise.io/signature"]) == 130
    assert int(bound["metadata"]["resourceVersion"]) == version + 1
    assert cluster.problems() == ()


def test_api_calls_are_counted_and_no_node_is_written(cluster):
    for at in range(3):
        cluster.schedule(cluster.add(f"p{at}", {"slicewise.io/cores": "30"}))

    text = cluster.ask("/metrics")[1].decode()
    calls = [line for line in text.splitlines() if line.startswith("slicewise_api_calls_total")]
    # A key is made and published once, by the first leader of all.
    others = ('verb="get"', 'verb="list"', 'verb="watch"', '"events"', '"leases"')
    others = (*others, '"secrets"', '"configmaps"')
    writes = [line for line in calls if not any(word in line for word in others)]
    assert len(writes) == 1, writes
    assert 'resource="pods/binding"' in writes[0]
    assert writes[0].endswith(" 3.0")


def test_gpus_fill_up_and_then_refuse(cluster):
    bound = [cluster.schedule(cluster.add(f"p{at}", {"slicewise.io/gpu": "1"})) for at in range(5)]

    assert [pod and pod["spec"]["nodeName"] for pod in bound].count(None) == 1
    assert cluster.problems() == ()


def test_lost_answer_of_a_bind_is_settled_by_reading(cluster):
    pod = cluster.add("p", {"slicewise.io/cores": "30"})
    cluster.playground.faults.add(
        InjectedFault(action="cut", verb="create", resource="pods/binding", after=True)
    )

    assert cluster.schedule(pod)["spec"]["nodeName"] == "n0"


def test_refused_bind_is_told_and_can_be_repeated(cluster):
    pod = cluster.add("p", {"slicewise.io/gpu": "2"})
    cluster.playground.faults.add(InjectedFault(verb="create", resource="pods/binding", code=403))
    body = bodies.binding("n0", "p", pod["metadata"]["uid"])

    refused = json.loads(cluster.ask("/bind", body)[1])
    bound = json.loads(cluster.ask("/bind", body)[1])

    assert "pod default/p" in refused["Error"]
    assert bound == {"Error": ""}


def test_burst_of_binds_never_overcommits(cluster):
    pods = [cluster.add(f"p{at}", {"slicewise.io/cores": "60"}) for at in range(12)]
    answers = []

    def bind(pod, at):
        meta = pod["metadata"]
        body = bodies.binding(f"n{at % 2}", meta["name"], meta["uid"])
        answers.append(json.loads(cluster.ask("/bind", body)[1])["Error"])

    threads = [threading.Thread(target=bind, args=(pod, at)) for at, pod in enumerate(pods)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers.count("") == 4
    assert cluster.problems() == ()


def test_filter_only_configuration_commits_and_the_scheduler_binds(cluster):
    limits = {"tencent.com/vcuda-core": "30", "tencent.com/vcuda-memory": "4"}
    pod = cluster.add("p", limits)

    body = bodies.args(pod, nodes=[bodies.node("n0"), bodies.node("n1")])
    reply = json.loads(cluster.ask("/scheduler/predicates", body)[1])

    (node,) = reply["Nodes"]["items"]
    marked = cluster.playground.get("pods", "p")
    name = node["metadata"]["name"]
    assert marked["metadata"]["annotations"]["tencent.com/predicate-node"] == name
    cluster.playground.bind("p", name)
    assert cluster.problems() == ()


def test_an_event_on_the_pod_says_which_gpus(cluster):
    cluster.schedule(cluster.add("p", {"slicewise.io/cores": "30"}))
    wait_until(lambda: cluster.playground.objects("events"))

    (event,) = cluster.playground.objects("events")
    text = json.dumps(event)
    assert "GpuAssigned" in text
    assert "c0: 30 percent of gpu 0" in text


def hold_lease(playground):
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {
        "holderIdentity": "another",
        "leaseDurationSeconds": 15,
        "acquireTime": now,
        "renewTime": now,
        "leaseTransitions": 0,
    }
    meta = {"name": LEASE[1], "namespace": LEASE[0]}
    playground.create("leases", {"metadata": meta, "spec": spec})


LEASE = ("kube-system", "slicewise-extender")


def test_leader_is_ready_and_holds_the_lease():
    with Cluster(leader_elect=True) as cluster:
        cluster.wait_ready()

        assert cluster.playground.get("leases", LEASE[1], LEASE[0])["spec"]["holderIdentity"]
    assert not cluster.playground.get("leases", LEASE[1], LEASE[0])["spec"].get("holderIdentity")


def test_follower_is_synced_but_decides_nothing():
    with Cluster(prepare=hold_lease, leader_elect=True, signing=None) as cluster:
        wait_until(lambda: b"slicewise_ledger_nodes 2.0" in cluster.ask("/metrics")[1])
        pod = cluster.add("p", {"slicewise.io/gpu": "1"})

        assert cluster.ask("/healthz")[0] == 200
        wait_until(lambda: cluster.ask("/readyz") == (200, b"ok"))
        assert cluster.ask("/leadz")[0] == 503
        answer = cluster.ask("/bind", bodies.binding("n0", "p", pod["metadata"]["uid"]))[1]
        assert "does not lead" in json.loads(answer)["Error"]


def test_second_decider_without_election_says_so_and_decides_nothing():
    quick = LeaseTiming(lease_seconds=60.0, renew_seconds=40.0, retry_seconds=0.02)
    with Cluster(prepare=hold_lease, leader_elect=False, lease_timing=quick) as cluster:
        wait_until(lambda: b"another" in cluster.ask("/leadz")[1])
        renewed = {"spec": {"renewTime": "2030-01-01T00:00:00.000000Z"}}
        cluster.playground.patch("leases", LEASE[1], renewed, namespace=LEASE[0])

        wait_until(lambda: b"another extender decides: another" in cluster.ask("/leadz")[1])
        assert cluster.ask("/leadz")[0] == 503
        assert b"slicewise_extender_other_deciders_total 1.0" in cluster.ask("/metrics")[1]
        told = cluster.playground.get("leases", LEASE[1], LEASE[0])["metadata"]["annotations"]
        assert list(told) == [OTHER_DECIDER]
