import json
import re

import pytest

from slicewise.dialects import DEFAULT
from slicewise.model import Role, TraceError
from slicewise.placement import POLICIES
from slicewise.sim.draw import draw_arrivals
from slicewise.sim.manifests import read_manifests
from slicewise.sim.replay import replay

NODES = """
apiVersion: v1
kind: NodeList
items:
  - metadata:
      name: a
      labels: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB, nvidia.com/gpu.memory: "40960"}
    status: {allocatable: {cpu: "32", memory: 128Gi, nvidia.com/gpu: 2}}
  - metadata: {name: t, labels: {nvidia.com/gpu.product: Tesla-T4}}
    status:
      capacity: {cpu: 16, memory: 64Gi, aliyun.com/gpu-count: 2, aliyun.com/gpu-mem: 30}
"""
PODS = """
kind: Pod
metadata: {name: own, namespace: ml}
spec:
  containers:
    - {name: c, resources: {limits: {cpu: 0.5, slicewise.io/cores: 30, slicewise.io/memory: 4096}}}
---
kind: Pod
metadata: {name: shared}
spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 5}}}]}
---
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  template:
    spec:
      containers:
        - name: c
          resources: {limits: {nvidia.com/vcuda-core: 40, nvidia.com/vcuda-memory: 2048}}
---
kind: Job
metadata: {name: train}
spec:
  completions: 2
  template:
    metadata: {annotations: {nvidia.com/gpu.model: A100}}
    spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}
---
kind: ConfigMap
metadata: {name: settings}
"""


@pytest.fixture
def read(tmp_path):
    def put(*texts, suffix=".yaml"):
        paths = [tmp_path / f"file{at}{suffix}" for at in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        return read_manifests(paths, DEFAULT)

    return put


def test_nodes_are_read_in_the_words_of_whoever_published_them(read):
    a, t = read(NODES, PODS).nodes

    assert [(gpu.model, gpu.memory) for gpu in a.gpus] == [("NVIDIA-A100-SXM4-40GB", 40960)] * 2
    assert [(gpu.model, gpu.memory) for gpu in t.gpus] == [("Tesla-T4", 15360)] * 2
    assert (a.host.cpu, t.host.memory) == (32000, 65536)


def test_pods_of_all_dialects_become_requests(read):
    pods = {f"{pod.namespace}/{pod.name}": pod.request for pod in read(NODES, PODS).pods}

    assert sorted(pods) == [
        "default/shared",
        "default/train-0",
        "default/train-1",
        "default/web-0",
        "default/web-1",
        "default/web-2",
        "ml/own",
    ]
    assert pods["ml/own"].host.cpu == 500
    shares = {name: pod.containers[0].shares[0] for name, pod in pods.items()}
    assert (shares["ml/own"].cores, shares["ml/own"].memory) == (30, 4096)
    assert (shares["default/shared"].cores, shares["default/shared"].memory) == (0, 5120)
    assert shares["default/web-1"].cores == 40
    assert pods["default/train-0"].constraints.models == ("A100",)


def test_mixed_dialects_replay_on_one_ledger(read):
    trace = read(NODES, PODS)

    record = replay(trace, draw_arrivals(trace, 1, load=60), POLICIES["best-fit"])

    assert record.allocated[-1] == record.arrived[-1] > 0
    assert not record.refused


def test_init_containers_and_sidecars_keep_their_role(read):
    pod = """
kind: Pod
metadata: {name: p}
spec:
  initContainers:
    - {name: warm, resources: {limits: {slicewise.io/cores: 80, slicewise.io/memory: 10}}}
    - name: side
      restartPolicy: Always
      resources: {limits: {slicewise.io/cores: 10, slicewise.io/memory: 10}}
  containers:
    - {name: main, resources: {limits: {slicewise.io/cores: 20, slicewise.io/memory: 10}}}
"""
    (read_back,) = read(NODES, pod).pods

    roles = {each.name: each.role for each in read_back.request.containers}
    assert roles == {"warm": Role.INIT, "side": Role.SIDECAR, "main": Role.MAIN}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            "spec: {containers: [{name: c, resources: {limits: {slicewise.io/cores: 150}}}]}",
            r"Pod bad is left out: .*slicewise\.io/cores=150",
            id="150-percent",
        ),
        pytest.param("spec: {}", r"Pod bad is left out: .*containers", id="no-containers"),
        pytest.param(
            "spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 500m}}}]}",
            r"Pod bad is left out: .*nvidia\.com/gpu=500m",
            id="half-a-gpu",
        ),
    ],
)
def test_pod_that_cannot_be_read_is_left_out_with_a_note(read, body, message):
    trace = read(NODES, PODS, f"kind: Pod\nmetadata: {{name: bad}}\n{body}\n")

    (note,) = trace.notes
    assert len(trace.pods) == 7
    assert re.search(message, note)


def test_absurd_number_of_replicas_is_left_out_with_a_note(read):
    many = PODS.replace("replicas: 3", "replicas: 1000000000")

    (note,) = read(NODES, many).notes

    assert "Deployment web is left out: replicas=1000000000: expected 0 to 100000" in note


def test_json_reads_like_yaml(read):
    node = {
        "kind": "Node",
        "metadata": {"name": "j"},
        "status": {"allocatable": {"nvidia.com/gpu": "4", "cpu": "1", "memory": "1Gi"}},
    }

    assert len(read(json.dumps(node), suffix=".json").nodes[0].gpus) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [", "cannot read .*file0.yaml", id="not-yaml"),
        pytest.param("just words", "'just words': expected a Kubernetes object", id="no-object"),
        pytest.param("kind: Pod", "expected at least one Node", id="no-node"),
    ],
)
def test_file_that_is_no_cluster_is_refused(read, text, message):
    with pytest.raises(TraceError, match=message):
        read(text)
