"""GPUs by ResourceClaim on a real node: kube-scheduler allocates, the agent prepares.

Nothing but the API server, its scheduler, one kubelet and our agent takes part.
"""

import json
import signal
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from e2e.agent_node import USER, AgentNode
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
from slicewise.nodeagent.claims.nudges import NUDGED
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.runtimes import WITH_CDI
from slicewise_testbed.settings import Settings
from slicewise_testbed.testbed import Testbed, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.since(36)]
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


def test_alternatives_selectors_and_demands_between_requests_are_kept(claim_node):
    both, report = claim_node.run("both", share(10, "1Gi", "a"), share(20, "2Gi", "b"))
    assert claim_node.check(both, report) == [(10, 1024), (20, 2048)]
    assert len({each["shareID"] for each in both}) == 2

    parted = [{"distinctAttribute": UUID, "requests": ["a", "b"]}]
    apart, _ = claim_node.run(
        "apart", share(10, "1Gi", "a"), share(10, "1Gi", "b"), constraints=parted
    )
    assert len(claim_node.gpus_of(apart)) == 2

    words = (
        f'device.attributes["{DRIVER}"].productName.lowerAscii().contains("a10")',
        f'device.capacity["{DRIVER}"].memory.compareTo(quantity("30Gi")) < 0',
    )
    cel = [{"cel": {"expression": each}} for each in words]
    small, report = claim_node.run("small", share(10, "1Gi", selectors=cel))
    assert claim_node.check(small, report) == [(10, 1024)]

    parts = [share(80, "40Gi", "big"), share(20, "2Gi", "little")]
    listed = [{"name": each["name"], **each["exactly"]} for each in parts]
    first, report = claim_node.run("first", {"name": "g", "firstAvailable": listed})
    assert [each["request"] for each in first] == ["g/little"]
    assert claim_node.check(first, report) == [(20, 2048)]

    every, report = claim_node.run("every", share(10, "1Gi", allocationMode="All"))
    assert len(claim_node.gpus_of(every)) == len(claim_node.node.gpus)
    assert claim_node.check(every, report) == [(10, 1024)] * len(claim_node.node.gpus)


def test_claims_that_nothing_can_meet_wait_and_are_explained(claim_node):
    strange = share(10, "1Gi")
    strange["exactly"]["capacity"]["requests"]["core"] = "10"
    missing = [{"cel": {"expression": f'device.attributes["{DRIVER}"].product == "A10"'}}]
    wanted = {
        "cores": (share(120, "1Gi"), "cannot allocate all claims", "lacks 20 percent"),
        "memory": (share(10, "99Gi"), "cannot allocate all claims", "lacks 76800 MiB"),
        "count": (share(10, "1Gi", count=9), "cannot allocate all claims", "does not fit"),
        "strange": (strange, "cannot allocate all claims", "capacity core: expected cores or"),
        "selector": (share(10, "1Gi", selectors=missing), "no such key", "selector: product"),
    }
    for name, (request, _, _) in wanted.items():
        claim_node.apply(template(name, request), claiming(name, name))

    for name, (_, said, told) in wanted.items():
        claim_node.cluster.wait_message(CLAIMS, name, said)
        assert told in claim_node.ask("why", f"{CLAIMS}/{name}", code=1)


def test_what_if_tells_the_gpu_that_a_claim_then_gets(claim_node, tmp_path):
    claim_node.run("half", share(60, "4Gi"))
    path = tmp_path / "pods.yaml"
    documents = [template("more", share(60, "4Gi")), claiming("more", "more")]
    path.write_text(yaml.safe_dump_all(documents))

    told = claim_node.ask("what-if", "-n", CLAIMS, "-f", str(path))

    claim_node.apply(*documents)
    results, _ = claim_node.wait("more")
    (gpu,) = claim_node.gpus_of(results)
    assert told == (
        f"it fits\n  {CLAIMS}/more: node {claim_node.node.node.name}, "
        f"gpu: 60 percent and 4096 MiB of gpu {gpu.index}\n"
    )


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


def test_unhealthy_gpu_is_told_in_pods_and_takes_no_claim_until_it_is_healthy(claim_node):
    claim_node.node.stop_agent()
    claim_node.start_agent("--recover-seconds=20")
    held, _ = claim_node.run("held", share(30, "4Gi"))
    (sick,) = claim_node.gpus_of(held)
    claim_node.node.describe(faults=[{"sequence": 1, "gpu": sick.index, "xid": XID}])

    def taints():
        (found,) = claim_node.slices()
        devices = {each["name"]: each for each in found["spec"]["devices"]}
        listed = devices[sick.uuid.lower()].get("taints", [])
        return [(each["key"], each["effect"]) for each in listed]

    def health():
        (status,) = claim_node.find("held")["status"]["containerStatuses"]
        return [
            resource["health"]
            for each in status.get("allocatedResourcesStatus", ())
            for resource in each["resources"]
        ]

    tainted = [("slicewise.io/unhealthy", "NoSchedule")]
    wait_until(lambda: taints() == tainted, 30, claim_node.node.agent_tail)
    beside, _ = claim_node.run("beside", share(30, "4Gi"))
    assert claim_node.gpus_of(beside) != [sick]
    wait_until(lambda: health() == ["Unhealthy"], 60, claim_node.node.agent_tail)
    assert claim_node.find("held")["status"]["phase"] == "Running"

    claim_node.node.describe(faults=[])
    wait_until(lambda: taints() == [], 60, claim_node.node.agent_tail)
    wait_until(lambda: health() == ["Healthy"], 60, lambda: claim_node.find("held")["status"])
    cel = [{"cel": {"expression": f'device.attributes["{DRIVER}"].index == {sick.index}'}}]
    again, _ = claim_node.run("again", share(30, "4Gi", selectors=cel))
    assert claim_node.gpus_of(again) == [sick]


@contextmanager
def pcie_roots(node, *roots):
    """The node's kernel knows GPUs below these PCIe roots, by their indexes."""
    listed = "/sys/bus/pci/devices"
    lines = [f"mount -t tmpfs tmpfs {listed}", f"cd {listed}"]
    for index, root in enumerate(roots):
        bus = f"0000:{index + 1:02x}:00.0"
        lines += [f"mkdir -p roots/{root}/{bus}", f"echo 0x10de > roots/{root}/{bus}/vendor"]
        lines += [f"ln -s roots/{root}/{bus} {bus}"]
    node.run_inside("sh", "-ec", "; ".join(lines))
    try:
        yield
    finally:
        node.run_inside("umount", listed)


def test_gpus_of_one_claim_are_below_one_pcie_root_where_it_asks_for_that(claim_node):
    roots = ("pci0000:10", "pci0000:20") * 4
    claim_node.node.stop_agent()
    with pcie_roots(claim_node.node.node, *roots):
        claim_node.start_agent()
        below = [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]
        found = [
            claim_node.run(f"near-{at}", share(count=3), constraints=below)[0] for at in range(2)
        ]

    indexes = [[gpu.index for gpu in claim_node.gpus_of(each)] for each in found]
    assert indexes == [[0, 2, 4], [1, 3, 5]]


def test_pods_are_deleted_from_an_unhealthy_gpu_where_that_was_asked_for(claim_node):
    claim_node.node.stop_agent()
    claim_node.start_agent("--recover-seconds=60", "--dra-evict-unhealthy")
    held, _ = claim_node.run("held", share(30, "4Gi"))
    (sick,) = claim_node.gpus_of(held)
    whole = [{"cel": {"expression": f'device.attributes["{DRIVER}"].index != {sick.index}'}}]
    other, _ = claim_node.run("other", share(30, "4Gi", selectors=whole))
    assert claim_node.gpus_of(other) != [sick]

    claim_node.node.describe(faults=[{"sequence": 1, "gpu": sick.index, "xid": XID}])

    def left():
        return {each["metadata"]["name"] for each in claim_node.node.cluster.pods(CLAIMS)}

    wait_until(lambda: "held" not in left(), 60, claim_node.node.agent_tail)
    assert left() == {"other"}


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
    # What remains is the note and the spec of the one that runs.
    wait_until(lambda: len(kept_files(node)) == 2, 120, lambda: f"{kept_files(node)}")


def test_claim_deleted_by_force_leaves_nothing_behind_once_its_pod_is_gone(claim_node):
    node = claim_node.node
    claim_node.run("robbed", share(30, "4Gi"))
    (claim,) = (each["resourceClaimName"] for each in claims_of(claim_node.find("robbed")))
    path = f"{GROUP}/namespaces/{CLAIMS}/resourceclaims/{claim}"
    with node.plane.api() as api:
        api.patch(path, {"metadata": {"finalizers": None}})
        api.delete(path, gracePeriodSeconds=0)
    wait_until(lambda: len(kept_files(node)) == 2, 60, lambda: f"{kept_files(node)}")

    claim_node.delete("robbed")

    wait_until(lambda: kept_files(node) == [], 120, lambda: f"{kept_files(node)}")
    whole, report = claim_node.run("whole", share())
    assert claim_node.check(whole, report) == [(100, claim_node.gpus_of(whole)[0].memory)]


def kept_files(node):
    """What the agent keeps of claims on the node: its notes and their CDI specs."""
    notes = node.node.device_plugins.parents[1] / "slicewise" / "claims"
    return [*notes.glob("*.json"), *node.node.cdi.glob("slicewise-claim-*.json")]


def claims_of(found):
    return found["status"]["resourceClaimStatuses"]


@pytest.mark.parametrize(
    ("mode", "gate"),
    [("all", "DRAConsumableCapacity"), ("shared", "DRADeviceBindingConditions")],
)
def test_server_whose_gate_is_off_is_offered_nothing_and_the_gate_is_named(
    kube_binaries, mode, gate
):
    settings = Settings(feature_gates={gate: False})
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, settings).start()
        node = AgentNode(plane, WITH_CDI, make_gpus((2, "NVIDIA A10", 24576)))
        node.launch_agent(f"--dra={mode}")

        node.wait_log(f"the feature gate {gate} is off")

        with plane.api() as api:
            assert api.get(f"{GROUP}/resourceslices")["items"] == []


@pytest.fixture
def without_nudges(fresh_node):
    """The agent may not touch pods, so that the kubelet tries again when it likes."""
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{USER}-of-the-testbed"
    with fresh_node.plane.api() as api:
        rules = api.get(path)["rules"]
        kept = [
            {**rule, "resources": [each for each in rule["resources"] if each != "pods"]}
            if "patch" in rule["verbs"]
            else rule
            for rule in rules
        ]
        api.patch(path, {"rules": kept})
    yield
    with fresh_node.plane.api() as api:
        api.patch(path, {"rules": rules})


def run_burst(claim_node):
    """Seconds until thirty claims at once all run, and how many of their pods were touched."""
    claim_node.apply(template("fifth", share(20, "1Gi")))
    start = time.monotonic()
    claim_node.apply(*(claiming(f"burst-{at}", "fifth") for at in range(30)))
    claim_node.node.wait_running(CLAIMS, 30, 240)
    seconds = time.monotonic() - start
    held = Counter()
    for at in range(30):
        (result,) = claim_node.results(f"burst-{at}")
        held[result["device"]] += int(result["consumedCapacity"]["cores"])
    assert sum(held.values()) == 600
    assert max(held.values()) <= 100
    pods = claim_node.cluster.pods(CLAIMS)
    touched = sum(NUDGED in each["metadata"].get("annotations", {}) for each in pods)
    print(f"burst of 30: {seconds:.1f} s, {touched} pods touched")
    return seconds, touched


def test_burst_of_claims_runs_within_its_time_and_no_gpu_is_given_beyond_its_size(claim_node):
    # A kubelet that nobody touches tries again after 60 to 90 seconds.
    seconds, _ = run_burst(claim_node)

    assert seconds < 150


@pytest.mark.usefixtures("without_nudges")
def test_burst_of_claims_runs_without_nudges_as_well(claim_node):
    _, touched = run_burst(claim_node)

    assert touched == 0


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
