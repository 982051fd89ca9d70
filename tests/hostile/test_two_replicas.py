"""An administrator runs two replicas with the default flags."""

import signal
from collections import Counter

import pytest

from e2e import wirings
from e2e.balancer import Splitter, is_ready
from e2e.gpu_cluster import NAME, pod
from e2e.gpu_nodes import A10, mixed_node
from e2e.truth import held_gpus
from hostile.tenancy import SIGNATURE, Tenancy, marks_of
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster
NODES = [f"last-{at}" for at in range(5)]
SIZES = {name: [A10[1]] * 4 for name in NODES}
TOLD = "two extenders decide"
QUICK = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}


def test_two_replicas_with_default_flags_give_no_gpu_twice(tenancy: Tenancy) -> None:
    tenancy.cluster.stop_extender(signal.SIGTERM, NAME)
    names = (f"{NAME}-a", f"{NAME}-b")
    urls = [tenancy.cluster.start_extender(name=name, ready=False) for name in names]
    wait_until(lambda: any(map(is_ready, urls)), 40, lambda: tenancy.bed.tail(names[0]))
    tenancy.cluster.add_nodes(*(mixed_node(name, A10, 4) for name in NODES))
    wanted = {"slicewise.io/gpu": 1}
    pods = [pod(f"p{at:02}", wanted, tolerations=[]) for at in range(24)]

    with Splitter(urls) as splitter:
        extender = {**wirings.everything(splitter.url), "httpTimeout": "5s"}
        tenancy.cluster.schedule_with(extender, **QUICK)
        tenancy.tenant.create(*(keep_off(each, tenancy.node.node.name) for each in pods))
        wait_until(lambda: len(bound(tenancy)) >= 20, 90, lambda: f"{len(bound(tenancy))} bound")

    found = bound(tenancy)
    assert held_gpus(found, SIZES) == {name: [(100, A10[1])] * 4 for name in NODES}
    assert Counter(map(is_ready, urls)) == {True: 1, False: 1}
    signers = {marks_of(each)[SIGNATURE].partition(".")[0] for each in found}
    assert len(signers) == 1


def test_two_without_election_find_each_other_and_one_decides(tenancy: Tenancy) -> None:
    cluster = tenancy.cluster
    cluster.stop_extender(signal.SIGTERM, NAME)
    names = (f"{NAME}-a", f"{NAME}-b")
    urls = [
        cluster.start_extender("--no-leader-elect", name=name, ready=name == names[0])
        for name in names
    ]

    for name in names:
        said = tenancy.bed.log(name)
        wait_until(lambda said=said: TOLD in said.read_text(), 30, lambda: tenancy.bed.tail(NAME))
    assert list(map(is_ready, urls)) == [True, False]
    cluster.stop_extender(signal.SIGKILL, names[0])
    wait_until(lambda: is_ready(urls[1]), 30, lambda: tenancy.bed.tail(names[1]))


def bound(tenancy: Tenancy) -> list[dict]:
    """The tenant's pods that have a node."""
    return [each for each in tenancy.tenant.pods() if each["spec"].get("nodeName")]


def keep_off(made: dict, node: str) -> dict:
    """The pod, which may go to every node but this one."""
    apart = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [apart]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return {**made, "spec": {**made["spec"], "affinity": affinity}}
