"""The real scheduler on the embedded API: informers, bindings and events of a real Go client."""

import json
import subprocess

import pytest

from conformance.bodies import pod
from conformance.kubectl import find_program
from playground.waiting import phases, wait_for
from slicewise_playground.cluster import Playground
from slicewise_playground.kubelet.simulated_node import SimulatedNode
from slicewise_playground.kubelet.simulated_nodes import SimulatedNodes

pytestmark = pytest.mark.cluster
CAPACITY = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "2"}


@pytest.fixture
def scheduled(tmp_path):
    """A playground of two nodes on which the real scheduler places pods."""
    program = find_program("kube-scheduler")
    if program is None:
        pytest.skip("no kube-scheduler: build it or put it into KUBEBUILDER_ASSETS")
    playground = Playground()
    nodes = [SimulatedNode(name, CAPACITY) for name in ("n1", "n2")]
    playground.run(SimulatedNodes(playground.api, nodes).run)
    with playground:
        kubeconfig = playground.write_kubeconfig(tmp_path / "kubeconfig")
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(kubeconfig)},
        }
        (tmp_path / "config.json").write_text(json.dumps(config))
        command = [program, "--config", str(tmp_path / "config.json"), "--secure-port=0"]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                yield playground
            finally:
                process.kill()
                process.wait()


def test_scheduler_places_what_fits_and_says_what_does_not(scheduled):
    for number in range(4):
        scheduled.create("pods", pod(f"p{number}", limits={"nvidia.com/gpu": "1"}))
    wait_for(scheduled, "pods", lambda: set(phases(scheduled).values()) == {"Running"})
    scheduled.create("pods", pod("late", limits={"nvidia.com/gpu": "1"}))
    wait_for(scheduled, "events", lambda: "FailedScheduling" in reasons(scheduled))

    homes = [item["spec"].get("nodeName") for item in scheduled.objects("pods")]
    assert sorted(filter(None, homes)) == ["n1", "n1", "n2", "n2"]
    scheduled.delete("pods", "p0")
    wait_for(scheduled, "pods", lambda: phases(scheduled)["late"] == "Running")


def reasons(playground):
    """The reasons of all events."""
    return {event.get("reason") for event in playground.objects("events")}
