import pytest

from metricsapi.scene import Scene
from reports.values import gpu, node, pod
from slicewise.metricsapi.registry import STEP, AgentHealth
from slicewise.reports import ReportDelta


def held(scene):
    return {each.pod.key: each.node for each in scene.registry.pods()}


def test_deleted_pod_leaves_its_neighbours():
    scene = Scene()
    session = scene.tell(node(pods=[pod("a"), pod("b"), pod("c")]))

    session.apply(ReportDelta(pods_lost=("ml/b",)))

    assert held(scene) == {"ml/a": "n1", "ml/c": "n1"}


@pytest.mark.parametrize(
    ("seconds", "health"), [(3.2, AgentHealth.HEARD), (3.4, AgentHealth.SILENT)]
)
def test_node_is_unhealthy_after_its_time_of_silence(seconds, health):
    scene = Scene()
    scene.tell(node())

    scene.seconds = seconds
    scene.registry.sweep()

    assert scene.registry.records["n1"].health is health


def test_beat_makes_a_silent_node_well_at_once():
    scene = Scene()
    session = scene.tell(node())
    scene.seconds = 10.0
    scene.registry.sweep()

    session.heartbeat()

    assert scene.registry.records["n1"].health is AgentHealth.HEARD
    assert len(scene.registry.records) == 1


def test_closed_connection_alone_does_not_make_a_node_unhealthy():
    scene = Scene()
    session = scene.tell(node())
    session.end()
    scene.seconds = 1.0
    scene.registry.sweep()

    assert scene.registry.records["n1"].health is AgentHealth.HEARD


def test_newer_connection_of_a_node_replaces_the_older():
    scene, closed = Scene(), []
    old = scene.registry.open("n1")
    old.keep(lambda: closed.append("old"))
    old.replace(node(pods=[pod("a")]))
    new = scene.registry.open("n1")
    new.replace(node(pods=[pod("b")]))
    scene.seconds = 10.0

    old.heartbeat()
    old.replace(node(pods=[pod("late")]))
    old.end()
    scene.registry.sweep()

    assert closed == ["old"]
    assert held(scene) == {"ml/b": "n1"}
    assert scene.registry.records["n1"].health is AgentHealth.SILENT
    assert new.current


def test_pod_that_moved_is_shown_where_it_was_told_last_and_outlives_the_old_place():
    scene = Scene()
    first = scene.tell(node("n1", pods=[pod("a")]))
    second = scene.tell(node("n2", pods=[pod("a")]))
    assert held(scene) == {"ml/a": "n2"}

    first.replace(node("n1"))
    assert held(scene) == {"ml/a": "n2"}
    second.replace(node("n2"))

    assert held(scene) == {}


def test_pod_goes_back_to_the_node_that_still_holds_it():
    scene = Scene()
    scene.tell(node("n1", pods=[pod("a")]))
    second = scene.tell(node("n2", pods=[pod("a")]))

    second.replace(node("n2"))

    assert held(scene) == {"ml/a": "n1"}


def test_node_that_left_the_cluster_is_forgotten_once_it_is_silent():
    scene = Scene()
    scene.tell(node(pods=[pod("a")]))
    scene.registry.on_node_deleted("n1")
    assert "n1" in scene.registry.records

    scene.seconds = 10.0
    scene.registry.sweep()

    assert scene.registry.records == {}
    assert held(scene) == {}


def test_silent_node_that_is_still_in_the_cluster_is_kept():
    scene = Scene()
    scene.tell(node())
    scene.registry.on_node_deleted("n1")
    scene.registry.on_node("n1")
    scene.seconds = 1e6
    scene.registry.sweep()

    assert scene.registry.records["n1"].health is AgentHealth.SILENT


def test_versions_grow_from_one_process_to_the_next():
    first = Scene()
    first.tell(node(pods=[pod("a")]))
    later = Scene()
    later.seconds = 1.0

    assert later.registry.now() > first.registry.now()
    assert int(later.registry.now().timestamp() * 1e3) * STEP > first.registry.revision


def test_changed_gpu_changes_the_node_and_not_its_pods():
    scene = Scene()
    session = scene.tell(node(pods=[pod("a")]))
    before = next(scene.registry.pods())
    revision = scene.registry.records["n1"].revision

    session.replace(node(gpus=(gpu(healthy=False),), pods=[pod("a")]))

    assert scene.registry.records["n1"].revision > revision
    assert next(scene.registry.pods()) == before
