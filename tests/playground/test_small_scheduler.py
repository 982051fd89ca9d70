"""The small scheduler: which nodes it looks at, what it says, and whose configuration it takes."""

import pytest

from conformance.bodies import pod
from playground.waiting import wait_for
from slicewise.model.backoff import Backoff
from slicewise_playground.cluster import Playground
from slicewise_playground.controlplane.extender_calls import ExtenderError, read_extenders
from slicewise_playground.controlplane.scheduler import (
    SchedulerDelays,
    SchedulerProfile,
    SmallScheduler,
)
from slicewise_playground.kubelet.simulated_node import SimulatedNode
from slicewise_playground.kubelet.simulated_nodes import SimulatedNodes

SMALL = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "1"}
UNREACHABLE = {"extenders": [{"urlPrefix": "http://127.0.0.1:9", "filterVerb": "filter"}]}


def scheduled(nodes, profiles=()):
    """A playground whose pods are placed at once, or tried again soon."""
    playground = Playground()
    playground.run(SimulatedNodes(playground.api, nodes).run)
    quick = SchedulerDelays(Backoff(0.02, 0.05))
    playground.run(SmallScheduler(playground.api, lambda: playground.url, profiles, quick).run)
    return playground


def failures(playground):
    """What events of failed attempts say, with their counts."""
    events = playground.objects("events")
    return {e["message"]: e["count"] for e in events if e["reason"] == "FailedScheduling"}


def test_pod_waits_for_room_and_takes_it_when_there_is_some():
    with scheduled([SimulatedNode("n1", SMALL)]) as playground:
        for name in ("a", "b"):
            playground.create("pods", pod(name, limits={"nvidia.com/gpu": "1"}))
        said = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
        wait_for(playground, "events", lambda: failures(playground).get(said, 0) > 1)

        homes = {
            p["metadata"]["name"]: p["spec"].get("nodeName") for p in playground.objects("pods")
        }
        assert set(homes.values()) == {"n1", None}
        placed, waiting = sorted(homes, key=lambda name: homes[name] is None)
        playground.delete("pods", placed)
        wait_for(
            playground,
            "pods",
            lambda: playground.get("pods", waiting)["spec"].get("nodeName") == "n1",
        )


def test_tainted_nodes_are_left_alone():
    taint = {"key": "only", "value": "others", "effect": "NoSchedule"}
    nodes = [SimulatedNode("n1", SMALL, taints=(taint,)), SimulatedNode("n2", SMALL)]
    with scheduled(nodes) as playground:
        playground.create("pods", pod("a"))
        wait_for(
            playground, "pods", lambda: bool(playground.get("pods", "a")["spec"].get("nodeName"))
        )

        assert playground.get("pods", "a")["spec"]["nodeName"] == "n2"


@pytest.mark.parametrize("ignorable", [False, True])
def test_pod_is_placed_without_its_extender_only_if_that_is_ignorable(ignorable):
    extenders = read_extenders(
        {"extenders": [{**UNREACHABLE["extenders"][0], "ignorable": ignorable}]}
    )
    profile = SchedulerProfile("x", frozenset({"nvidia.com/gpu"}), extenders)
    with scheduled([SimulatedNode("n1", SMALL)], [profile]) as playground:
        playground.create("pods", pod("a", limits={"nvidia.com/gpu": "1"}))
        if ignorable:
            wait_for(
                playground,
                "pods",
                lambda: bool(playground.get("pods", "a")["spec"].get("nodeName")),
            )
        else:
            wait_for(playground, "events", lambda: bool(failures(playground)))

        assert ("nodeName" in playground.get("pods", "a")["spec"]) == ignorable
        assert sum(playground.writes("create", "pods/binding").values()) == ignorable


def test_unknown_key_of_an_extender_is_refused():
    with pytest.raises(ExtenderError, match="enableHttps"):
        read_extenders({"extenders": [{"urlPrefix": "http://x", "enableHttps": False}]})
