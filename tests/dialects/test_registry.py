import pytest

import builders
import strategies
from slicewise.dialects import (
    ALLOCATION,
    DEFAULT,
    ELASTIC,
    GPUSCHEDULER,
    GPUSHARE,
    SLICEWISE,
    TKESTACK,
    Dialects,
    QuotaLabels,
    apply_record,
    write_gpus,
)
from slicewise.dialects.gpushare import build_gpushare
from slicewise.model import (
    Container,
    DialectError,
    Host,
    MiB,
    NodeNotice,
    PodRecord,
    QuantityError,
    Request,
    Role,
)

EXAMPLES = {
    "tkestack": ({"nvidia.com/vcuda-core": 30, "nvidia.com/vcuda-memory": 4096}, TKESTACK),
    "upstream": ({"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 16}, TKESTACK),
    "gpushare": ({"aliyun.com/gpu-mem": 3}, GPUSHARE),
    "elastic": ({"elasticgpu.io/gpu-core": 30}, ELASTIC),
    "percent": ({"elastic-gpu/gpu-percent": "20"}, ELASTIC),
    "nvidia": ({"nvidia.com/gpu": "1"}, GPUSCHEDULER),
    "slicewise": ({"slicewise.io/cores": 30, "slicewise.io/memory": 4096}, SLICEWISE),
}
examples = pytest.mark.parametrize(
    ("limits", "dialect"), [pytest.param(*each, id=name) for name, each in EXAMPLES.items()]
)


@examples
def test_pod_is_claimed_by_the_dialect_of_its_limits(limits, dialect):
    assert DEFAULT.claim(builders.pod(limits=limits)) is dialect


@examples
def test_pod_of_any_dialect_is_read_written_and_read_back(limits, dialect):
    pod, node = builders.pod(limits=limits), builders.node()
    request = DEFAULT.read_request(pod)
    allocation = strategies.place(request, node)

    record = DEFAULT.record_allocation(pod, request, allocation, node, now_ns=1)

    assert DEFAULT.read_allocation(pod, node) is None
    assert DEFAULT.read_allocation(apply_record(pod, record), node) == allocation
    assert DEFAULT.read_allocation(apply_record(pod, record), node, request) == allocation


@examples
def test_marks_are_the_record_without_ours(limits, dialect):
    pod, node = builders.pod(limits=limits), builders.node()
    request = DEFAULT.read_request(pod)
    allocation = strategies.place(request, node)

    record = DEFAULT.record_allocation(pod, request, allocation, node, now_ns=1)
    marks = DEFAULT.write_marks(pod, request, allocation, node, now_ns=1)

    assert marks.labels == record.labels
    assert {ALLOCATION: "", **marks.annotations} == {**record.annotations, ALLOCATION: ""}


@examples
def test_our_record_is_believed_in_every_dialect(limits, dialect):
    pod, node = builders.pod(limits=limits), builders.node()
    allocation = strategies.place(DEFAULT.read_request(pod), node)
    first = DEFAULT.record_allocation(pod, DEFAULT.read_request(pod), allocation, node, now_ns=1)
    share = DEFAULT.read_request(pod).containers[0].shares[0]
    memory = 40960 if share.whole else share.memory
    record = f'{{"containers":{{"c0":[[1,"GPU-n0-1",{share.cores},{memory}]]}},"node":"n0"}}'

    both = apply_record(apply_record(pod, first), PodRecord({ALLOCATION: record}))

    assert DEFAULT.read_allocation(both, node).gpus == (1,)


@examples
def test_stale_record_is_replaced_by_a_new_decision(limits, dialect):
    node = builders.node()
    stale = '{"containers":{"c0":[[1,"GPU-n0-1",30,4096]]},"node":"n0"}'
    pod = builders.pod(limits=limits, annotations={ALLOCATION: stale})
    allocation = strategies.place(DEFAULT.read_request(pod), node)

    assert strategies.remember(dialect, pod, allocation, node) == allocation


def test_invalid_record_gives_way_to_the_marks_of_the_system():
    pod = builders.pod(
        limits={"nvidia.com/vcuda-core": 30, "nvidia.com/vcuda-memory": 1},
        annotations={ALLOCATION: "{}", "nvidia.com/predicate-gpu-idx-0": "1"},
    )

    assert DEFAULT.read_allocation(pod, builders.node()).gpus == (1,)


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"cpu": 2, "memory": "1Gi"},
        {"nvidia.com/gpu": 0},
        {"nvidia.com/vcuda-memory": 4096},
        {"example.com/gpu": 1},
    ],
)
def test_pod_that_asks_for_no_gpu_is_claimed_by_none(limits):
    pod, node = builders.pod(limits=limits), builders.node()

    assert DEFAULT.claim(pod) is None
    assert DEFAULT.read_request(pod).containers == ()
    assert DEFAULT.read_allocation(pod, node) is None
    empty = strategies.place(Request(), node)
    assert DEFAULT.record_allocation(pod, Request(), empty, node, now_ns=1) == PodRecord()


def test_containers_that_speak_two_dialects_are_refused_naming_both():
    pod = builders.pod(
        Container("c0", limits={"nvidia.com/gpu": 1}),
        Container("c1", limits={"aliyun.com/gpu-mem": 3}),
    )

    with pytest.raises(DialectError, match=r"aliyun.com/gpu-mem and nvidia.com/gpu are asked for"):
        DEFAULT.claim(pod)


def test_unreadable_amount_is_claimed_and_then_named():
    pod = builders.pod(limits={"aliyun.com/gpu-mem": "500m"})

    assert DEFAULT.claim(pod) is GPUSHARE
    with pytest.raises(QuantityError, match=r"container c0: aliyun.com/gpu-mem=500m"):
        DEFAULT.read_request(pod)


def test_ten_thousand_containers_that_ask_for_no_gpu_ask_for_none():
    pod = builders.pod(*(builders.container(f"c{at}", cpu=1) for at in range(10_000)))

    request = DEFAULT.read_request(pod)

    assert (request.containers, request.host.cpu) == ((), 10_000_000)
    assert DEFAULT.read_limits(pod, builders.node()) == ()


def test_ten_thousand_containers_are_refused_naming_their_number():
    limits = {"nvidia.com/gpu": 1}
    pod = builders.pod(*(Container(f"c{at}", limits=limits) for at in range(10_000)))

    with pytest.raises(
        DialectError, match="pod default/p0: 10000 containers, expected at most 512"
    ):
        DEFAULT.read_request(pod)


@pytest.mark.parametrize(
    ("text", "started"),
    [('{"u0":{"c0":["GPU-1"]}}', {"u0": {"c0": ("GPU-1",)}}), ("garbage", {}), (None, {})],
)
def test_node_has_what_its_agent_says_that_pods_were_given(text, started):
    annotations = {} if text is None else {"slicewise.io/started-gpus": text}

    assert DEFAULT.read_node(NodeNotice("n0", annotations=annotations)).started == started


def test_unit_of_gpushare_is_the_registry_s_choice():
    pod = builders.pod(limits={"aliyun.com/gpu-mem": 3000})

    request = Dialects((build_gpushare(MiB(1)),)).read_request(pod)
    assert request.containers[0].shares[0].memory == 3000


def busy(name, cpu, memory="0", role=Role.MAIN, **more):
    return Container(name, requests={"cpu": cpu, "memory": memory}, role=role, **more)


@pytest.mark.parametrize(
    ("containers", "host"),
    [
        pytest.param([busy("a", "500m", "1Gi"), busy("b", 1, "1Mi")], (1500, 1025), id="sum"),
        pytest.param(
            [busy("a", 4, "1Mi", Role.INIT), busy("b", 1, "3Mi")], (4000, 3), id="init-peak"
        ),
        pytest.param(
            [busy("s", 1, "1Mi", Role.SIDECAR), busy("a", 4, "0", Role.INIT), busy("b", 2)],
            (5000, 1),
            id="init-beside-sidecar",
        ),
        pytest.param(
            [busy("a", 4, "0", Role.INIT), busy("s", 1, "0", Role.SIDECAR), busy("b", 2)],
            (4000, 0),
            id="init-before-sidecar",
        ),
        pytest.param([Container("a", limits={"cpu": "250m", "memory": 1})], (250, 1), id="limits"),
        pytest.param([], (0, 0), id="nothing"),
    ],
)
def test_host_request_is_that_of_the_phase_that_peaks(containers, host):
    assert DEFAULT.read_request(builders.pod(*containers)).host == builders.host(*host)


def test_unreadable_cpu_is_named():
    with pytest.raises(QuantityError, match="container a: cpu='many'"):
        DEFAULT.read_request(builders.pod(busy("a", "many")))


CAPACITY = {
    "nvidia.com/gpu": 6,
    "elasticgpu.io/gpu-core": 500,
    "elasticgpu.io/gpu-memory": 5000,
    "aliyun.com/gpu-count": 4,
    "aliyun.com/gpu-mem": 40,
    "tencent.com/vcuda-core": 300,
    "tencent.com/vcuda-memory": 30,
}


def notice(*left_out, annotations=None, **facts):
    capacity = {key: value for key, value in CAPACITY.items() if not key.startswith(left_out)}
    return NodeNotice("n0", annotations=annotations or {}, capacity=capacity, **facts)


@pytest.mark.parametrize(
    ("listed", "gpus"),
    [
        pytest.param(
            notice("~", annotations={"slicewise.io/gpus": write_gpus(builders.node(gpus=7))}),
            7,
            id="our-own-inventory",
        ),
        pytest.param(notice("~"), 3, id="tkestack"),
        pytest.param(notice("tencent"), 4, id="gpushare"),
        pytest.param(notice("tencent", "aliyun"), 5, id="elastic"),
        pytest.param(notice("tencent", "aliyun", "elastic"), 6, id="nvidia"),
        pytest.param(notice("tencent", "aliyun", "elastic", "nvidia"), 0, id="none"),
    ],
)
def test_most_exact_inventory_is_believed(listed, gpus):
    assert len(DEFAULT.read_node(listed).gpus) == gpus


def test_empty_inventory_of_our_agent_is_believed_too():
    listed = notice("~", annotations={"slicewise.io/gpus": '{"gpus":[]}'})

    assert DEFAULT.read_node(listed).gpus == ()


@pytest.mark.parametrize(
    "key", ["slicewise.io/gpu-pool", "gaia.tencent.com/gpu-pool", "tkestack.io/gpu-pool"]
)
def test_pool_is_read_from_any_of_its_labels(key):
    assert DEFAULT.read_node(NodeNotice("n0", labels={key: "team-a"})).pool == "team-a"


def test_host_of_a_node_is_what_it_offers_to_pods():
    listed = NodeNotice("n0", allocatable={"cpu": "63500m", "memory": "1048577Ki"})

    assert DEFAULT.read_node(listed).host == builders.host(63500, 1024)


def test_host_of_a_node_that_says_nothing_is_unknown():
    assert DEFAULT.read_node(NodeNotice("n0")).host is None
    assert DEFAULT.read_request(builders.pod()).host == Host()


def test_owned_resources_are_those_of_all_dialects():
    assert {"nvidia.com/gpu", "aliyun.com/gpu-mem", "slicewise.io/gpu"} < DEFAULT.resources


def test_one_resource_has_one_owner():
    with pytest.raises(DialectError, match=r"aliyun.com/gpu-count is owned by gpushare and gpusha"):
        Dialects((GPUSHARE, build_gpushare(MiB(1))))


@pytest.mark.parametrize("dialect", DEFAULT.dialects, ids=lambda dialect: dialect.name)
def test_pod_of_another_system_is_not_read(dialect):
    pod = builders.pod(limits={"example.com/gpu": 1})

    assert dialect.pods.claims(pod) is None
    assert dialect.node.read_node(NodeNotice("n0")) is None


def test_labels_of_a_clusters_own_quota_name_models_and_pools():
    dialects = DEFAULT.with_labels(QuotaLabels("example.com/model", "example.com/pool"))
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100",
        "example.com/model": "training-a",
        "example.com/pool": "east",
        "slicewise.io/gpu-pool": "west",
    }
    notice = NodeNotice("n", labels=labels, capacity={"nvidia.com/gpu": "1"})

    node = dialects.read_node(notice)

    assert node.pool == "east"
    assert [gpu.model for gpu in node.gpus] == ["NVIDIA-A100 training-a"]
    assert {"example.com/model", "example.com/pool"} <= set(dialects.keys)
    assert DEFAULT.read_node(notice).pool == "west"


def test_model_label_that_the_model_already_says_changes_nothing():
    dialects = DEFAULT.with_labels(QuotaLabels("example.com/model"))
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100", "example.com/model": "A100"}
    notice = NodeNotice("n", labels=labels, capacity={"nvidia.com/gpu": "1"})

    assert [gpu.model for gpu in dialects.read_node(notice).gpus] == ["NVIDIA-A100"]
