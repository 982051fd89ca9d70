import pytest

from slicewise.kube.affinity import read_node_requirements, rejection
from slicewise.model import NodeDetails, NodeNotice, Taint


def machine(labels=None, taints=(), **facts):
    return NodeDetails(NodeNotice("n0"), labels or {}, taints=taints, **facts)


def required(*expressions, fields=()):
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    selector = {"nodeSelectorTerms": [term]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": selector}
    return {"affinity": {"nodeAffinity": affinity}}


def wish(operator, *values):
    return {"key": "zone", "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param({}, None, id="no-demand"),
        pytest.param({"nodeName": "n1"}, "pod names node n1", id="another-node"),
        pytest.param({"nodeSelector": {"zone": "5"}}, None, id="selector"),
        pytest.param({"nodeSelector": {"zone": "6"}}, "no label zone=6", id="other-label"),
        pytest.param(required(wish("In", "5", "6")), None, id="in"),
        pytest.param(required(wish("Gt", "4")), None, id="gt"),
        pytest.param(required(wish("NotIn", "6"), wish("Exists")), None, id="all-hold"),
        pytest.param(
            required(wish("Exists"), wish("Lt", "5")),
            "no required node affinity term matches",
            id="one-fails",
        ),
        pytest.param(required(), "no required node affinity term matches", id="empty-term"),
        pytest.param(
            required(fields=[{"key": "metadata.name", "operator": "In", "values": ["n0"]}]),
            None,
            id="by-name",
        ),
    ],
)
def test_demands_on_labels_are_read_as_the_scheduler_reads_them(spec, reason):
    assert rejection(read_node_requirements(spec), machine({"zone": "5"})) == reason


TAINT = Taint("gpu", "yes", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "kept"),
    [
        pytest.param(None, True, id="none"),
        pytest.param({"key": "gpu", "value": "yes"}, False, id="equal"),
        pytest.param({"key": "gpu", "value": "no"}, True, id="other-value"),
        pytest.param({"key": "gpu", "operator": "Exists"}, False, id="exists"),
        pytest.param({"operator": "Exists"}, False, id="everything"),
        pytest.param({"key": "gpu", "value": "yes", "effect": "NoExecute"}, True, id="effect"),
    ],
)
def test_taint_keeps_pods_off_that_do_not_tolerate_it(toleration, kept):
    spec = {"tolerations": [toleration]} if toleration else {}

    reason = rejection(read_node_requirements(spec), machine(taints=(TAINT,)))

    assert reason == ("taint gpu=yes:NoSchedule" if kept else None)


def test_preferred_taints_and_cordoned_nodes():
    soft = Taint("gpu", "", "PreferNoSchedule")

    assert rejection(read_node_requirements({}), machine(taints=(soft,))) is None
    closed = rejection(read_node_requirements({}), machine(unschedulable=True))
    assert closed == "taint node.kubernetes.io/unschedulable:NoSchedule"
