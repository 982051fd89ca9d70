"""GPUs by ResourceClaim on a real node: kube-scheduler allocates, the agent prepares.

Nothing but the API server, its scheduler, one kubelet and our agent takes part.
"""

import json
import signal
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from e2e.agent_node import AgentNode
from e2e.claim_node import (
    CLAIMS,
    GROUP,
    ClaimNode,
    claiming,
    device_class,
    share,
    speaking,
    template,
)
from e2e.recorded_gpus import make_gpus
from slicewise.cli.claim import claim
from slicewise.model.claim import DRIVER
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.runtimes import WITH_CDI
from slicewise_testbed.settings import Settings
from slicewise_testbed.testbed import Testbed, wait_until

pytestmark = pytest.mark.cluster
XID = 79
# Files without pods, and demands that a claim cannot make.
NOT_CONVERTIBLE = ("configmap.yaml", "kube-scheduler-config.yaml", "templates.yaml")
UUID = f"{DRIVER}/uuid"


@pytest.fixture(scope="module")
def fresh_node(kube_binaries):
    """A node whose kubelet never knew a device plugin, which it would not forget."""
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, Settings()).start()
        yield AgentNode(plane, WITH_CDI, make_gpus((8, "NVIDIA A10", 24576)))


@pytest.fixture
def claim_node(fresh_node):
    made = ClaimNode(fresh_node)
    yield made
    made.clear()


def test_claims_of_every_form_bring_exactly_their_gpus(claim_node):
    (offered,) = claim_node.slices()
    assert len(offered["spec"]["devices"]) == len(claim_node.node.gpus)

    thirds = [claim_node.run(f"share-{at}", share(30, "4Gi")) for at in range(4)]
    assert [claim_node.check(*each) for each in thirds] == [[(30, 4096)]] * 4
    assert [claim_node.gpus_of(results)[0].index for results, _ in thirds] == [0, 0, 0, 1]

    assert claim_node.check(*claim_node.run("memory", share(0, "4100.5Mi"))) == [(0, 4101)]
    whole, report = claim_node.run("whole", share())
    assert claim_node.check(whole, report) == [(100, claim_node.gpus_of(whole)[0].memory)]
    two, report = claim_node.run("two", share(10, "1Gi", count=2))
    assert claim_node.check(two, report) == [(10, 1024), (10, 1024)]
    assert len(claim_node.gpus_of(two)) == 2

    same = [{"matchAttribute": UUID, "requests": ["a", "b"]}]
    both, report = claim_node.run(
        "same", share(10, "1Gi", "a"), share(20, "2Gi", "b"), constraints=same
    )
    assert claim_node.check(both, report) == [(10, 1024), (20, 2048)]
    assert len(claim_node.gpus_of(both)) == 1

    cel = [{"cel": {"expression": f'device.attributes["{DRIVER}"].index == 6'}}]
    chosen, report = claim_node.run("chosen", share(10, "1Gi", selectors=cel))
    assert claim_node.check(chosen, report) == [(10, 1024)]
    assert [gpu.index for gpu in claim_node.gpus_of(chosen)] == [6]


def test_whole_gpus_by_resource_name_come_from_claims(claim_node):
    claim_node.apply(device_class("whole-gpus", extendedResourceName="nvidia.com/gpu"))
    # The scheduler asks an extender about the name, which must charge nothing twice.
    claim_node.node.start_extender("--dra", "--no-leader-elect")
    for count in (1, 2):
        claim_node.apply(speaking(f"gpus-{count}", {"nvidia.com/gpu": count}))
        results, report = claim_node.wait(f"gpus-{count}")
        assert len(results) == count
        assert [cores for cores, _ in claim_node.check(results, report)] == [100] * count
    held = claim_node.cluster.gpus()[claim_node.node.node.name]
    assert sorted(cores for cores, _ in held) == [0] * 5 + [100] * 3
    claim_node.cluster.schedule_with()


def test_slice_that_the_kubelet_deleted_comes_back_with_the_agent(claim_node):
    claim_node.run("before", share(30, "4Gi"))
    claim_node.node.stop_agent(signal.SIGKILL)
    # The kubelet waits for half a minute before it deletes what a lost driver offered.
    wait_until(lambda: not claim_node.slices(), 60, lambda: "the slice is still there")
    claim_node.apply(template("after", share(30, "4Gi")), claiming("after", "after"))
    assert claim_node.find("before")["status"]["phase"] == "Running"

    claim_node.node.start_agent("--dra=all")
    results, report = claim_node.wait("after")

    assert claim_node.check(results, report) == [(30, 4096)]
    assert len(claim_node.slices()) == 1


def test_unhealthy_gpu_takes_no_claim_until_it_is_healthy(claim_node):
    uuid = claim_node.node.gpus[0].uuid
    claim_node.node.describe(faults=[{"sequence": 1, "gpu": 0, "xid": XID}])

    def taints():
        (found,) = claim_node.slices()
        devices = {each["name"]: each for each in found["spec"]["devices"]}
        return [each["key"] for each in devices[uuid.lower()].get("taints", [])]

    wait_until(lambda: taints() == ["slicewise.io/unhealthy"], 30, claim_node.node.agent_tail)
    results, _ = claim_node.run("beside", share(30, "4Gi"))
    assert uuid.lower() not in {each["device"] for each in results}


def test_lost_specs_and_broken_notes_are_made_good(claim_node):
    node = claim_node.node
    results, report = claim_node.run("kept", share(30, "4Gi"))
    node.node.run_inside("sh", "-c", "rm -f /var/run/cdi/slicewise-claim-*.json")
    node.stop_agent(signal.SIGKILL)
    node.start_agent("--dra=all")
    node.restart_container(CLAIMS, "kept", "main")
    assert claim_node.check(results, node.reports(claim_node.find("kept"))["main"][-1]) == [
        (30, 4096)
    ]

    node.stop_agent(signal.SIGKILL)
    node.node.run_inside(
        "sh", "-c", "for f in /var/lib/slicewise/claims/*.json; do echo '{' > $f; done"
    )
    node.start_agent("--dra=all")
    claim_node.delete("kept")
    again, report = claim_node.run("again", share(30, "4Gi"))
    assert claim_node.check(again, report) == [(30, 4096)]
    wait_until(
        lambda: "kept" not in node.node.run_inside("sh", "-c", "ls /var/lib/slicewise/claims"),
        60,
        node.agent_tail,
    )


def test_server_whose_gate_is_off_is_offered_nothing_and_the_gate_is_named(kube_binaries):
    settings = Settings(feature_gates={"DRAConsumableCapacity": False})
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, settings).start()
        node = AgentNode(plane, WITH_CDI, make_gpus((2, "NVIDIA A10", 24576)))
        node.launch_agent("--dra=all")

        node.wait_log("the feature gate DRAConsumableCapacity is off")

        with plane.api() as api:
            assert api.get(f"{GROUP}/resourceslices")["items"] == []


def test_burst_of_claims_runs_and_no_gpu_is_given_beyond_its_size(claim_node):
    claim_node.apply(template("fifth", share(20, "1Gi")))
    claim_node.apply(*(claiming(f"burst-{at}", "fifth") for at in range(30)))
    claim_node.node.wait_running(CLAIMS, 30, 150)

    held = Counter()
    for at in range(30):
        (result,) = claim_node.results(f"burst-{at}")
        held[result["device"]] += int(result["consumedCapacity"]["cores"])
    assert sum(held.values()) == 600
    assert max(held.values()) <= 100


def test_converted_examples_of_every_system_are_what_the_server_takes(claim_node):
    files = sorted((Path(__file__).parents[2] / "examples").glob("*/*.yaml"))
    convertible = [each for each in files if each.name not in NOT_CONVERTIBLE]
    claim_node.cluster.make_namespace("team-a")
    texts = {
        each.name: CliRunner().invoke(claim, ["-f", str(each)], catch_exceptions=False).output
        for each in convertible
    }

    created = [
        claim_node.node.plane.kubectl("apply", "--dry-run=server", "-f", "-", stdin=text)
        for text in texts.values()
    ]

    templates = [line for text in created for line in text.splitlines() if "claimtemplate" in line]
    assert len(templates) >= len(convertible)


def test_node_says_that_its_gpus_are_given_out_by_claims(claim_node):
    def annotation(key):
        return json.loads(claim_node.node.node_object()["metadata"]["annotations"][key])

    amounts = claim_node.node.node_object()["status"]["allocatable"]

    assert all(each["claims"] for each in annotation("slicewise.io/gpus")["gpus"])
    wait_until(
        lambda: annotation("slicewise.io/agent")["claims"] == "all", 30, claim_node.node.agent_tail
    )
    assert not any(name.startswith("slicewise.io/") for name in amounts)
