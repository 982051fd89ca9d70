import json
from dataclasses import replace

import builders
from fakes.cluster import FakeState
from slicewise.cluster import GpuHealth, NodeGone, NodeSeen, Quota, read_quota
from slicewise.dashboard.rows import NOT_READY, SILENT, UNSCHEDULABLE
from slicewise.dashboard.table_updater import TableUpdater
from slicewise.dashboard.tables import PageTables
from slicewise.dashboard.usage import MeasuredGpu, MeasuredNode, MeasuredPod
from slicewise.kube.watch import Gone, Seen
from slicewise.model import NodeNotice

LIMITS = {"slicewise.io/cores": 30, "slicewise.io/memory": 4096}


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def placed(node="n0", gpu=0, uid="u0", **facts):
    given = {"c0": [[gpu, f"GPU-{node}-{gpu}", 30, 4096]]}
    record = json.dumps({"containers": given, "node": node})
    annotations = {"slicewise.io/allocation": record}
    return builders.pod(
        limits=LIMITS, uid=uid, name=uid, node=node, annotations=annotations, **facts
    )


class Scene:
    """A updater over a ledger that knows what the test tells it."""

    def __init__(self, *nodes, quota=None):
        self.state = FakeState(*(nodes or (builders.node("n0"),)), quota=quota)
        self.clock = Clock()
        self.tables = PageTables("e")
        self.updater = TableUpdater(self.state, self.tables, clock=self.clock)

    def look(self):
        self.updater.refresh()
        return self

    def rows(self, section):
        return [json.loads(body) for body in self.tables.sections[section].bodies()]

    @property
    def totals(self):
        return self.rows("totals")[0]


def test_node_is_told_with_its_gpus_and_their_pods():
    scene = Scene()
    scene.state.see(placed(gpu=1, namespace="ml"))

    row = scene.look().rows("nodes")[0]

    assert row == [
        "n0", 0, "", [[0, 0, 40960, 0], [1, 0, 40960, 0]], [["ml", "u0", 1, 1, 30, 4096]],
    ]  # fmt: skip
    assert scene.rows("models") == [[0, "NVIDIA A100-SXM4-40GB"]]


def test_pod_is_told_with_what_its_record_promises_of_limits():
    scene = Scene()
    pod = placed()
    record = json.loads(pod.annotations["slicewise.io/allocation"])
    text = json.dumps({**record, "isolation": {"c0": ["driver", "hook"]}})
    scene.state.see(replace(pod, annotations={"slicewise.io/allocation": text}))

    assert scene.look().rows("nodes")[0][4] == [
        ["default", "u0", 1, 0, 30, 4096, "driver/hook"],
    ]


def test_pod_whose_gpus_are_nowhere_recorded_is_told_apart():
    scene = Scene()
    bare = builders.pod(limits={"nvidia.com/gpu": 1}, node="n0", name="bare")
    scene.state.see(bare)
    assert scene.look().rows("nodes")[0][4][0][:3] == ["default", "bare", 2]

    record = json.dumps({"containers": {"c0": [[0, "GPU-n0-0", 100, 40960]]}, "node": "n0"})
    annotations = {"slicewise.io/allocation": record}
    scene.state.see(replace(bare, annotations=annotations, version=1))

    assert scene.look().rows("nodes")[0][4] == [["default", "bare", 1, 0, 100, 40960]]


def test_only_what_changed_is_told_again():
    scene = Scene(*(builders.node(f"n{at}") for at in range(200))).look()
    at = scene.tables.revision
    scene.state.see(placed("n7"))
    scene.look()

    told = json.loads(scene.tables.encode_since(at))

    assert [row[0] for row in told["nodes"]["rows"]] == ["n7"]


def test_totals_follow_pods_that_come_and_go():
    scene = Scene(builders.node("n0", 2), builders.node("n1", 2)).look()
    scene.state.see(placed("n0"), placed("n1", uid="u1"))
    held = scene.look().totals
    scene.state.ledger.apply(NodeGone("n1", 1))
    after = scene.look().totals

    assert (held["cores_held"], held["pods"], held["whole"], held["stranded"]) == (60, 2, 2, 140)
    assert held["fragmented"] == round(100 * 140 / 340, 2)
    assert (after["nodes"], after["cores_held"], after["gpus"]) == (1, 30, 2)
    assert [row[0] for row in scene.rows("nodes")] == ["n0"]


def test_unhealthy_gpu_is_flagged_and_not_counted_as_room():
    scene = Scene(builders.node("n0", 2))
    scene.state.ledger.apply(GpuHealth("n0", "GPU-n0-1", False))

    scene.look()

    assert [gpu[3] for gpu in scene.rows("nodes")[0][3]] == [0, 1]
    assert (scene.totals["unhealthy"], scene.totals["cores"], scene.totals["whole"]) == (1, 100, 1)


def test_node_that_is_silent_or_closed_is_flagged():
    scene = Scene().look()
    scene.updater.on_nodes([Seen(NodeNotice("n0", ready=False, unschedulable=True))])
    scene.look()

    assert scene.rows("nodes")[0][1] == NOT_READY | UNSCHEDULABLE
    assert scene.totals["silent"] == 1

    scene.updater.on_nodes([Seen(NodeNotice("n0"))])
    assert scene.look().rows("nodes")[0][1] == 0


def test_node_without_gpus_has_no_row_until_it_has_some():
    scene = Scene(builders.node("n0", 0)).look()
    assert scene.rows("nodes") == []

    scene.state.ledger.apply(NodeSeen(builders.node("n0", 1), 1))

    assert [row[0] for row in scene.look().rows("nodes")] == ["n0"]


def test_waiting_pod_is_told_with_its_reasons():
    scene = Scene(builders.node("n0", 2), builders.node("n1", 2, memory=8192))
    big = builders.pod(limits={"slicewise.io/memory": 50000, "slicewise.io/cores": 5}, name="big")
    scene.updater.on_pods([Seen(big)])

    row = scene.look().rows("waiting")[0]

    assert row[:3] == ["u0", "default", "big"]
    assert row[3] == "c0: 5 percent and 50000 MiB of one GPU"
    assert row[4:] == [1000000, 0, 2, [["No GPU is large enough", 2]]]
    assert scene.totals["waiting"] == 1


def test_pod_that_is_placed_or_gone_waits_no_more():
    scene = Scene()
    for uid in ("u0", "u1"):
        scene.updater.on_pods([Seen(builders.pod(limits=LIMITS, uid=uid))])
    assert len(scene.look().rows("waiting")) == 2

    scene.updater.on_pods([Seen(placed(uid="u0")), Gone("u1", 5)])

    assert scene.look().rows("waiting") == []


def test_pod_without_gpus_is_nobody_who_waits():
    scene = Scene()
    scene.updater.on_pods([Seen(builders.pod(limits={"cpu": "1"}))])

    assert scene.look().rows("waiting") == []


def test_request_that_cannot_be_read_is_the_reason():
    scene = Scene()
    scene.updater.on_pods([Seen(builders.pod(limits={"slicewise.io/cores": "many"}))])

    row = scene.look().rows("waiting")[0]

    assert "many" in row[7][0][0]


def test_misspelt_resource_is_the_reason_and_the_right_name_is_told():
    scene = Scene()
    scene.updater.on_pods([Seen(builders.pod(limits={"aliyun.com/gpu-memory": 3}))])

    row = scene.look().rows("waiting")[0]

    assert row[5] == 0
    assert "probably aliyun.com/gpu-mem was meant" in row[7][0][0]


def test_reasons_change_with_the_cluster():
    scene = Scene(builders.node("n0", 1))
    scene.state.see(placed())
    whole = builders.pod(limits={"slicewise.io/gpu": 1}, uid="w")
    scene.updater.on_pods([Seen(whole)])
    assert scene.look().rows("waiting")[0][5] == 0

    scene.state.ledger.apply(NodeSeen(builders.node("n1", 1), 1))

    assert scene.look().rows("waiting")[0][5] == 1


def test_everybody_who_waits_has_a_turn_though_time_is_short():
    scene = Scene()
    pods = [builders.pod(limits=LIMITS, uid=f"u{at}") for at in range(5)]
    scene.updater.on_pods([Seen(pod) for pod in pods])
    scene.look()
    for turn in range(1, 6):
        scene.state.ledger.apply(NodeSeen(builders.node(f"m{turn}", 1), 1))
        scene.updater.waiting.refresh(scene.state.snapshot(), iter([True, False]).__next__)

    totals = sorted(row[6] for row in scene.updater.waiting.rows().values())

    assert totals == [2, 3, 4, 5, 6]


def test_pod_that_comes_late_is_asked_about_before_those_known():
    scene = Scene()
    waiting = scene.updater.waiting
    for uid in ("u0", "u1", "u2"):
        waiting.see(builders.pod(limits=LIMITS, uid=uid))
    waiting.refresh(scene.state.snapshot(), lambda: True)
    waiting.see(builders.pod(limits=LIMITS, uid="late"))
    scene.state.ledger.apply(NodeSeen(builders.node("n1", 1), 1))

    waiting.refresh(scene.state.snapshot(), iter([True, False]).__next__)

    assert {uid: row[6] for uid, row in waiting.rows().items()} == {
        "u0": 1, "u1": 1, "u2": 1, "late": 2,
    }  # fmt: skip


def test_quota_stands_beside_what_is_held():
    quota = read_quota('{"ml": {"quota": {"A100": 2}}, "idle": {"quota": {"T4": 1}}}')
    scene = Scene(quota=quota)
    scene.state.see(placed(namespace="ml"), placed(gpu=1, uid="u1", namespace="free"))

    assert scene.look().rows("quota") == [
        ["free", "NVIDIA A100-SXM4-40GB", 30, None],
        ["idle", "T4", 0, 1],
        ["ml", "A100", 30, 2],
    ]


def test_new_quota_is_told_though_nothing_else_changed():
    scene = Scene().look()
    scene.state.quota = read_quota('{"ml": {"quota": {"A100": 2}}}')

    assert scene.look().rows("quota") == [["ml", "A100", 0, 2]]

    scene.state.quota = Quota()
    assert scene.look().rows("quota") == []


def test_troubles_are_told():
    scene = Scene()
    scene.state.see(builders.pod(limits=LIMITS, node="n0", name="unmarked"))

    rows = scene.look().rows("troubles")

    assert rows[0][:2] == ["default/unmarked", "MissingAllocation"]


def test_history_has_a_point_every_two_seconds():
    scene = Scene().look()
    scene.clock.now += 1
    scene.look()
    scene.clock.now += 1
    scene.look()

    assert [row[0] for row in scene.rows("points")] == [1000000, 1002000]


def test_use_is_told_by_the_position_of_its_gpu():
    scene = Scene().look()
    use = MeasuredNode(
        (MeasuredGpu("GPU-n0-1", 40, 900),), (MeasuredPod("ml/p", "GPU-n0-1", 40, None),)
    )

    scene.updater.take_usage({"n0": use, "elsewhere": use})

    assert scene.rows("usage") == [["n0", [[1, 40, 900]], [["ml/p", 1, 40, None]]]]


def test_node_whose_agent_fell_silent_is_flagged_until_it_speaks():
    scene = Scene().look()
    scene.updater.take_usage({"n0": MeasuredNode(silent=True)})
    assert scene.look().rows("nodes")[0][1] == SILENT
    assert scene.totals["silent"] == 1

    scene.updater.take_usage({})

    assert scene.look().rows("nodes")[0][1] == 0


def test_nothing_is_told_before_the_cluster_is_known():
    scene = Scene()
    scene.state.ready = False

    assert scene.look().tables.revision == 0
