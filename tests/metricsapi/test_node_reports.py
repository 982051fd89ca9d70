import asyncio
import json

from metricsapi.scene import PREFIX, TABLE, Scene, read
from reports.values import gpu, node, pod
from slicewise.httpd import Stream
from slicewise.reports import MeasuredUse, ProcessReport
from slicewise.reports.listing import LIST_PATH, decode_list

GROUP = LIST_PATH.rpartition("/")[0]


def ask(scene, path=LIST_PATH, **facts):
    return asyncio.run(scene.ask(path, **facts))


def names(document):
    return [item["metadata"]["name"] for item in document["items"]]


def busy(name="n1", cores=40, **facts):
    return node(name, gpus=(gpu(use=MeasuredUse(512, cores)),), pods=[pod("a")], **facts)


def test_one_answer_has_every_node_whole():
    stray = ProcessReport(gpu="GPU-a", pid=7, memory_mib=300, origin="host")
    reports = [busy(f"n{at}", at, sampled_at=1.5, processes=(stray,)) for at in range(3)]
    scene = Scene()
    for report in reports:
        scene.tell(report)

    found = decode_list(ask(scene).body)

    assert [item.report for item in found.items] == reports
    assert {item.status.agent for item in found.items} == {"heard"}


def test_version_handed_back_brings_what_changed_alone():
    scene = Scene()
    sessions = [scene.tell(busy(f"n{at}")) for at in range(3)]
    first = read(scene, LIST_PATH)
    sessions[1].replace(busy("n1", 90))

    second = read(scene, LIST_PATH, since=first["metadata"]["resourceVersion"])
    third = read(scene, LIST_PATH, since=second["metadata"]["resourceVersion"])

    assert names(first) == ["n0", "n1", "n2"]
    assert "since" not in first
    assert second["since"] == first["metadata"]["resourceVersion"]
    assert names(second) == ["n1"]
    assert second["items"][0]["report"]["gpus"][0]["use"]["cores"] == 90
    assert names(third) == []


def test_agent_that_falls_silent_is_told_though_its_report_did_not_change():
    scene = Scene()
    scene.tell(busy("n1"))
    first = read(scene, LIST_PATH)
    scene.seconds = 10.0
    scene.registry.sweep()

    (item,) = read(scene, LIST_PATH, since=first["metadata"]["resourceVersion"])["items"]

    assert item["status"] == {"agent": "silent"}


def test_node_that_was_forgotten_is_named():
    scene = Scene()
    for name in ("n0", "n1"):
        scene.tell(busy(name))
    first = read(scene, LIST_PATH)
    scene.registry.forget("n0")

    second = read(scene, LIST_PATH, since=first["metadata"]["resourceVersion"])

    assert (names(second), second["deleted"]) == ([], ["n0"])


def test_version_of_another_process_brings_everything():
    scene, other = Scene(), Scene()
    for each in (scene, other):
        each.tell(busy())
    version = read(other, LIST_PATH)["metadata"]["resourceVersion"]

    found = read(scene, LIST_PATH, since=version)

    assert names(found) == ["n1"]
    assert "since" not in found


def test_deletions_that_are_forgotten_make_a_reader_begin_again():
    scene = Scene()
    scene.tell(busy("stays"))
    version = read(scene, LIST_PATH)["metadata"]["resourceVersion"]
    for at in range(5000):
        scene.registry.tell(node(f"n{at}"))
        scene.registry.forget(f"n{at}")

    found = read(scene, LIST_PATH, since=version)

    assert names(found) == ["stays"]
    assert "since" not in found


def test_long_list_comes_in_pieces():
    scene = Scene()
    for at in range(1200):
        scene.registry.tell(busy(f"n{at:04}"))

    assert isinstance(ask(scene), Stream)
    assert len(read(scene, LIST_PATH)["items"]) == 1200


def test_one_node_can_be_read_by_its_name():
    scene = Scene()
    scene.judge.rights.add(("reader", "get"))
    scene.tell(busy("n1"))

    found = read(scene, f"{LIST_PATH}/n1")
    missing = ask(scene, f"{LIST_PATH}/n2")

    assert (found["kind"], found["metadata"]["name"]) == ("NodeReport", "n1")
    assert found["report"]["pods"][0]["name"] == "a"
    assert (missing.status, json.loads(missing.body)["reason"]) == (404, "NotFound")


def test_reports_need_the_right_to_list_them():
    scene = Scene()
    scene.judge.rights.clear()

    assert ask(scene, token="").status == 401
    answer = ask(scene)
    assert answer.status == 403
    assert b'cannot list resource \\"nodereports\\"' in answer.body
    assert scene.judge.asked[-1] == ("reader", "list", "nodereports")


def test_reports_cannot_be_watched_or_changed():
    scene = Scene()

    assert ask(scene, watch="true").status == 405
    assert ask(scene, method="POST").status == 405
    assert ask(scene, f"{LIST_PATH}/n1/status").status == 404


def test_kubectl_gets_a_table_of_reports():
    scene = Scene()
    scene.tell(busy())

    table = read(scene, LIST_PATH, headers=[("accept", TABLE)])

    assert table["kind"] == "Table"
    assert table["rows"][0]["cells"][0] == "n1"
    assert "namespace" not in table["rows"][0]["object"]["metadata"]


def test_own_group_is_discovered_beside_the_originals():
    (resource,) = read(Scene(), GROUP)["resources"]

    assert (resource["name"], resource["kind"]) == ("nodereports", "NodeReport")
    assert resource["verbs"] == ["get", "list"]
    assert "nodereports" not in str(read(Scene(), PREFIX))


def test_scheduler_verbs_are_not_served_in_the_own_group():
    scene = Scene()
    scene.api.serve_scheduler(lambda _: None)

    assert ask(scene, f"{GROUP}/schedule/filter", method="POST").status == 404
