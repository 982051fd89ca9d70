"""A tenant tries to have containers started with another's GPU."""

import json

import pytest

from hostile.forged_marks import SYSTEMS, forge_pod, honest_pod
from hostile.tenancy import (
    RECORD,
    SIGNATURE,
    Pod,
    Tenancy,
    gpu_of,
    make_pod,
    marks_of,
    on,
    share,
    whole,
)
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster


def test_hand_written_marks_of_no_system_start_a_container(either_tenancy: Tenancy) -> None:
    tenancy = either_tenancy
    (taken,) = tenancy.run(tenancy.victim, whole("whole"))
    node, gpu = tenancy.node.node.name, gpu_of(taken)

    forged = [forge_pod(name, name, node, gpu, nodeName=node) for name in SYSTEMS]
    tenancy.tenant.create(*forged)

    for name in SYSTEMS:
        tenancy.wait_decided(tenancy.tenant, name)
        assert not any(gpu.device in given for given in tenancy.devices(tenancy.tenant, name)), name
    # Whole GPUs that others bound are assigned like any, so that pod may have a free one.
    refused = {name for name in SYSTEMS if tenancy.refusals(tenancy.tenant, name)}
    assert refused >= SYSTEMS.keys() - {"nvidia"}


def test_copied_signature_starts_no_container_with_its_gpu(tenancy: Tenancy) -> None:
    (taken,) = tenancy.run(tenancy.victim, share("taken", 10, 1024))
    node, gpu = tenancy.node.node.name, gpu_of(taken)
    copied = {key: marks_of(taken).get(key, "") for key in (RECORD, SIGNATURE)}

    forged = [
        forge_pod(name, name, node, gpu, nodeName=node, annotations=copied) for name in SYSTEMS
    ]
    tenancy.tenant.create(*forged)

    for name in SYSTEMS:
        tenancy.wait_decided(tenancy.tenant, name)
        assert not any(gpu.device in given for given in tenancy.devices(tenancy.tenant, name)), name


@pytest.mark.parametrize("edited", ["marks", "record", "record-and-signature"])
def test_edited_record_never_moves_a_restarted_container(
    either_tenancy: Tenancy, edited: str
) -> None:
    tenancy = either_tenancy
    (taken,) = tenancy.run(tenancy.victim, whole("whole"))
    gpu, names = gpu_of(taken), [name for name in SYSTEMS if name != "nvidia"]
    tenancy.run(tenancy.tenant, *(honest_pod(name, name) for name in names))

    for name in names:
        _, marks, _ = SYSTEMS[name if edited == "marks" else "slicewise"](taken_node(taken), gpu)
        copied = {SIGNATURE: marks_of(taken).get(SIGNATURE, "")}
        tenancy.tenant.annotate(name, {**marks, **(copied if "signature" in edited else {})})
        tenancy.tenant.end(name)

    for name in names:
        tenancy.wait_decided(tenancy.tenant, name, starts=2)
        first, *later = tenancy.devices(tenancy.tenant, name)
        assert gpu.device not in first, name
        assert all(each == first for each in later), name


def test_older_record_of_the_same_pod_does_not_bring_back_its_gpu(tenancy: Tenancy) -> None:
    (pod,) = tenancy.run(tenancy.tenant, make_pod("again", {"nvidia.com/gpu": 1}))
    node, old = pod["spec"]["nodeName"], {key: marks_of(pod)[key] for key in (RECORD, SIGNATURE)}
    # The record is gone, its GPU is wanted by another, so a new record may name another GPU.
    tenancy.tenant.annotate("again", {RECORD: None, SIGNATURE: None})
    tenancy.catch_up()
    tenancy.run(tenancy.victim, whole("rest", 3, **on(node)))
    tenancy.tenant.annotate("again", old)
    tenancy.tenant.end("again")

    tenancy.wait_decided(tenancy.tenant, "again", starts=2)

    mine, theirs = tenancy.devices(tenancy.tenant, "again"), tenancy.devices(tenancy.victim, "rest")
    assert not set.union(*mine) & set.union(*theirs)
    assert all(cores <= 100 for cores, _ in tenancy.held())


def test_pod_deleted_by_force_during_its_hook_keeps_its_gpu_while_it_goes_on(
    tenancy: Tenancy,
) -> None:
    lingering = whole("lingering", terminationGracePeriodSeconds=1)
    # The kubelet ends no container before its hook has ended.
    hook = {"postStart": {"exec": {"command": ["sleep", "45"]}}}
    lingering["spec"]["containers"][0]["lifecycle"] = hook
    (pod,) = tenancy.run(tenancy.tenant, lingering)
    (status,) = pod["status"]["containerStatuses"]
    assert "running" not in status["state"]

    tenancy.tenant.delete_by_force("lingering")
    tenancy.victim.create(whole("next", 4, **on(taken_node(pod))))

    tenancy.victim.wait("next", lambda found: found["spec"].get("nodeName"))
    tenancy.wait_decided(tenancy.victim, "next")
    assert any("lingering holds" in each for each in tenancy.refusals(tenancy.victim, "next"))
    # Its GPU is free once it has really ended.
    wait_until(lambda: tenancy.starts(tenancy.victim, "next"), 150, tenancy.node.agent_tail)


def test_device_of_another_container_cannot_be_named(tenancy: Tenancy) -> None:
    tenancy.run(tenancy.victim, whole("whole"))
    specs = tenancy.node.node.cdi.glob("slicewise-*")
    spec = json.loads(max(specs, key=lambda path: path.stat().st_mtime_ns).read_text())
    device = f"{spec['kind']}={spec['devices'][0]['name']}"

    named = {"annotations": {"cdi.k8s.io/mine": device, "cdi.k8s.io/slicewise": device}}
    tenancy.run(tenancy.tenant, make_pod("named", {}, metadata=named))

    assert tenancy.devices(tenancy.tenant, "named") == [set()]


def taken_node(pod: Pod) -> str:
    """Where the pod runs."""
    return str(pod["spec"]["nodeName"])
