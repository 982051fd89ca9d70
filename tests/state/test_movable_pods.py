"""Who may be moved, and why others may not."""

import msgspec
import pytest

from slicewise.kube.eviction.evictions import DisruptionBudget
from slicewise.kube.eviction.pod_facts import PodFactsBody, read_pod_facts
from slicewise.state.defrag.movable_pods import Budgets, find_obstacle

OWNER = {"kind": "ReplicaSet", "uid": "rs", "controller": True}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def facts(owner=OWNER, spec=None, **meta):
    owners = [] if owner is None else [owner]
    given = {"name": "p", "namespace": "ml", "uid": "u", "ownerReferences": owners, **meta}
    body = {"metadata": given, "spec": {"nodeName": "a", **(spec or {})}}
    return read_pod_facts(msgspec.convert(body, PodFactsBody))


def budget(allowed, namespace="ml", **labels):
    body = {
        "metadata": {"name": "pdb", "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.convert(body, DisruptionBudget)


def obstacle(pod, *budgets, **flags):
    return find_obstacle(pod, Budgets(budgets), **flags)


def test_pod_of_a_replica_set_may_be_moved():
    assert obstacle(facts()) is None


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        pytest.param(facts(owner=None), "has no controller", id="bare"),
        pytest.param(
            facts(owner={**OWNER, "controller": False}), "has no controller", id="owner-only"
        ),
        pytest.param(
            facts(owner={**OWNER, "kind": "DaemonSet"}), "belongs to a DaemonSet", id="daemon"
        ),
        pytest.param(facts(owner={**OWNER, "kind": "Node"}), "belongs to a Node", id="mirror"),
        pytest.param(
            facts(deletionTimestamp="2026-01-01T00:00:00Z"), "is leaving already", id="leaving"
        ),
        pytest.param(
            facts(spec={"volumes": [{"persistentVolumeClaim": {"claimName": "d"}}]}),
            "has a persistent volume",
            id="volume",
        ),
        pytest.param(
            facts(spec={"resourceClaims": [{"name": "gpu"}]}), "has resource claims", id="claims"
        ),
        pytest.param(
            facts(spec={"affinity": {"podAntiAffinity": {REQUIRED: [{}]}}}),
            "requires affinity to other pods",
            id="affinity",
        ),
        pytest.param(
            facts(spec={"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}),
            "requires a topology spread",
            id="spread",
        ),
    ],
)
def test_pod_is_not_moved_where_nobody_makes_it_anew_or_its_place_is_not_simulated(pod, why):
    assert obstacle(pod) == why


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("slicewise.io/movable", "false"),
        ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
        ("karpenter.sh/do-not-disrupt", "true"),
    ],
)
def test_annotation_forbids_a_move(key, value):
    assert obstacle(facts(annotations={key: value})) == f"has the annotation {key}: {value}"
    assert obstacle(facts(annotations={key: "other"})) is None


def test_preferred_affinity_and_scratch_volumes_do_not_matter():
    preferred = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}
    spread = [{"whenUnsatisfiable": "ScheduleAnyway"}]
    spec = {"affinity": preferred, "topologySpreadConstraints": spread}

    assert obstacle(facts(spec={**spec, "volumes": [{"emptyDir": {}}]})) is None


def test_budget_of_its_own_namespace_and_labels_decides():
    pod = facts(labels={"app": "a"})
    why = "has a disruption budget that allows no eviction now"

    assert obstacle(pod, budget(0, app="a")) == why
    assert obstacle(pod, budget(1, app="a")) is None
    assert obstacle(pod, budget(0, app="b")) is None
    assert obstacle(pod, budget(0, namespace="other", app="a")) is None


def test_budget_of_a_planned_move_is_asked_at_its_eviction():
    pod = facts(labels={"app": "a"})

    assert obstacle(pod, budget(0, app="a"), planned=True) is None


def test_pod_with_two_budgets_is_never_evicted():
    pod = facts(labels={"app": "a"})

    why = obstacle(pod, budget(5, app="a"), budget(5, app="a"), planned=True)

    assert why == "has more than one disruption budget"
