"""Pods of the documents, as they stand there and with their mistakes mended."""

import json
import re
import subprocess
from fractions import Fraction

from e2e.test_limits import SPACE, make_pod, run_program
from seeds.bed import ROOT, SeedBed, dump, rest
from seeds.statement import clear_error, partly, works
from slicewise.model import read_count
from slicewise.nodeagent.configuration import read_node_config
from slicewise_testbed.cuda import MIB, OUT_OF_MEMORY
from slicewise_testbed.testbed import wait_until

GPU_POD2 = """apiVersion: v1
kind: Pod
metadata:
  annotations:
    nvidia.com/vcuda-core-limit: '20'
    nvidia.com/use-gputype: a10
  name: gpu-pod2
spec:
  schedulerName: gpu-scheduler # 这里指定调度器为 gpu-scheduler
  containers:
    - name: c0
      image: registry.tydic.com/cube-studio/gpu-player:v2
      command: ["/usr/bin/python", "/app/main.py", "--total=1", "--allocated=1"]
      resources:
        limits:
          memory: 2Gi
          nvidia.com/vcuda-core: 20
          nvidia.com/vcuda-memory: 1000
    - name: c1
      image: registry.tydic.com/cube-studio/gpu-player:v2
      command: ["/usr/bin/python", "/app/main.py", "--total=1", "--allocated=1"]
      resources:
        limits:
          memory: 2Gi
          nvidia.com/vcuda-core: 20
          nvidia.com/vcuda-memory: 2000
"""
VCUDA = """apiVersion: v1
kind: Pod
metadata:
  name: vcuda
  annotations:
    nvidia.com/vcuda-core-limit: 50
spec:
  restartPolicy: Never
  containers:
  - image: <test-image>
    name: nvidia
    command:
    - /usr/local/nvidia/bin/nvidia-smi
    - pmon
    - -d
    - 10
    resources:
      requests:
        nvidia.com/vcuda-core: 50
        nvidia.com/vcuda-memory: 2048
      limits:
        nvidia.com/vcuda-core: 50
        nvidia.com/vcuda-memory: 2048
"""
TWO_GPUS = """apiVersion: v1
kind: Pod
metadata:
  name: vcuda
spec:
  restartPolicy: Never
  containers:
  - image: <test-image>
    name: nvidia
    command:
    - /usr/local/nvidia/bin/nvidia-smi
    - pmon
    - -d
    - 10
    resources:
      requests:
        nvidia.com/vcuda-core: 200
      limits:
        nvidia.com/vcuda-core: 200
"""
BINPACK = """apiVersion: apps/v1beta1
kind: StatefulSet

metadata:
  name: binpack-1
  labels:
    app: binpack-1

spec:
  replicas: 3
  serviceName: "binpack-1"
  podManagementPolicy: "Parallel"
  selector: # define how the deployment finds the pods it manages
    matchLabels:
      app: binpack-1

  template: # define the pods specifications
    metadata:
      labels:
        app: binpack-1

    spec:
      containers:
      - name: binpack-1
        image: cheyang/gpu-player:v2
        resources:
          limits:
            # GiB  需要指定此pod需要多少的显存, 分配完之后可以使用nvidia-smi查看
            aliyun.com/gpu-mem: 3
"""
ELASTIC = """cat <<EOF  | kubectl create -f - -n {space}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: cuda-gpu-test
  labels:
    app: gpu-test
spec:
  replicas: 1
  selector:
    matchLabels:
      app: gpu-test
  template:
    metadata:
      labels:
        app: gpu-test
    spec:
      containers:
        - name: cuda
          image: nvidia/cuda:10.0-base
          command: [ "sleep", "100000" ]
          resources::
            limits:
              elastic-gpu/gpu-percent: "20" 
EOF
"""  # noqa: W291 -- as it stands in the document


def _create(bed: SeedBed, space: str, text: str) -> "subprocess.CompletedProcess[str]":
    bed.write("manifest.yaml", text)
    return bed.type(f"kubectl create -n {space} -f manifest.yaml")


@works
def gpu_pod2_runs(bed: SeedBed) -> None:
    """The pod as it stands: its scheduler, both containers, its ceiling."""
    with bed.space("gpu-pod2") as space:
        bed.create(space, GPU_POD2)
        (found,) = bed.wait_phase(space, "Running")
        marks = bed.node.bound_marks()[found["metadata"]["uid"]]
        assert {"nvidia.com/predicate-gpu-idx-0", "nvidia.com/predicate-gpu-idx-1"} <= set(marks)
        logs = bed.plane.kubectl("logs", "gpu-pod2", "-c", "c0", "-n", space)
        assert logs == "python /app/main.py --total=1 --allocated=1\n"


@works
def gpu_pod2_gets_an_a10(bed: SeedBed) -> None:
    """a10 is an A10, never the A100 beside it."""
    with bed.space("a10") as space:
        bed.create(space, GPU_POD2)
        (found,) = bed.wait_phase(space, "Running")
        assert bed.models(found) == {"NVIDIA A10"}


@clear_error
def vcuda_as_it_stands(bed: SeedBed) -> None:
    """The API server names the bare number; quoting it is the whole repair."""
    with bed.space("vcuda-bare") as space:
        done = _create(bed, space, VCUDA)
        assert done.returncode
        assert "cannot unmarshal number into Go struct field" in done.stderr, done.stderr


@clear_error
def image_placeholder(bed: SeedBed) -> None:
    """The kubelet says that the name of the image is none."""
    quoted = VCUDA.replace("core-limit: 50", "core-limit: '50'").replace("- 10", "- '10'")
    with bed.space("placeholder") as space:
        bed.create(space, quoted)

        def told() -> bool:
            (found,) = bed.cluster.pods(space)
            states = found["status"].get("containerStatuses") or [{}]
            waiting = states[0].get("state", {}).get("waiting", {})
            return waiting.get("reason") == "InvalidImageName"

        wait_until(told, 40, lambda: bed.complain(space))


def _mend(text: str) -> str:
    """The pod with its numbers quoted and an image that is here."""
    mended = text.replace("core-limit: 50", "core-limit: '50'").replace("- 10", "- '10'")
    return mended.replace("<test-image>", "busybox:local")


@works
def vcuda_quoted_ends_well(bed: SeedBed) -> None:
    """With the number quoted and an image named, nvidia-smi runs from the agent's own volume."""
    with bed.space("vcuda") as space:
        bed.create(space, _mend(VCUDA))
        bed.wait_phase(space, "Succeeded")
        logs = bed.plane.kubectl("logs", "vcuda", "-n", space)
        assert logs == "fake nvidia-smi pmon -d 10\n"


@works
def two_gpus(bed: SeedBed) -> None:
    """Two whole GPUs of one node, without any memory asked for."""
    with bed.space("two-gpus") as space:
        bed.create(space, _mend(TWO_GPUS))
        (found,) = bed.wait_phase(space, "Succeeded")
        (gpus,) = bed.node.allocations([found])["vcuda"].values()
        assert len(gpus) == 2


@works
def tenth_of_a_gpu(bed: SeedBed) -> None:
    limits = {"nvidia.com/vcuda-core": 10, "nvidia.com/vcuda-memory": 100}
    with bed.space("tenth") as space:
        bed.create(space, dump(rest("tenth", limits)))
        bed.wait_phase(space, "Running")


@works
def valid_cores(bed: SeedBed) -> None:
    """100 and 20 run side by side; 200 has a check of its own."""
    share = {"nvidia.com/vcuda-core": 20, "nvidia.com/vcuda-memory": 1000}
    with bed.space("cores") as space:
        bed.create(space, dump(rest("whole", {"nvidia.com/vcuda-core": 100}), rest("share", share)))
        found = bed.wait_phase(space, "Running", 2)
        given = bed.node.allocations(found)
        assert given["whole"]["main"] != given["share"]["main"]


@clear_error
def invalid_cores(bed: SeedBed) -> None:
    with bed.space("invalid") as space:
        odd = rest("odd", {"nvidia.com/vcuda-core": 150})
        bed.create(space, dump(odd, rest("odder", {"nvidia.com/vcuda-core": 250})))
        bed.cluster.wait_message(space, "odd", "nvidia.com/vcuda-core=150")
        words = "expected less than 100 or a multiple of 100"
        bed.cluster.wait_message(space, "odder", words)


@clear_error
def misspelt_resource(bed: SeedBed) -> None:
    """The missing letter is found by what-if, which names the resource that was meant."""
    limits = {"nvidia.com/vcuda-core": 20, "vidia.com/vcuda-memory": 1000}
    bed.write("typo.yaml", dump(rest("typo", limits)))
    done = bed.type("kubectl slicewise what-if -f typo.yaml")
    said = done.stdout + done.stderr
    assert re.search(r"(?<!n)vidia\.com/vcuda-memory", said), said
    assert "nvidia.com/vcuda-memory" in said, said


@works
def shares_pack_on_one_gpu(bed: SeedBed) -> None:
    """Small shares go to a GPU that is already cut, so that whole ones stay free."""
    share = {"nvidia.com/vcuda-core": 20, "nvidia.com/vcuda-memory": 1000}
    wish = {"annotations": {"slicewise.io/policy": "binpack"}}
    with bed.space("packing") as space:
        bed.create(space, dump(*(rest(f"p{at}", share, metadata=wish) for at in range(3))))
        found = bed.wait_phase(space, "Running", 3)
        given = bed.node.allocations(found)
        assert len({gpus for each in given.values() for gpus in each.values()}) == 1


@works
def resources_are_registered(bed: SeedBed) -> None:
    amounts = bed.node.node_object()["status"]["allocatable"]
    assert amounts["nvidia.com/vcuda-core"] == str(100 * len(bed.node.gpus))


@works
def memory_by_the_mib(bed: SeedBed) -> None:
    """The Node counts every MiB of its GPUs, whether as devices or as a plain amount."""
    amounts = bed.node.node_object()["status"]["allocatable"]
    total = sum(gpu.memory for gpu in bed.node.gpus)
    assert read_count("vcuda-memory", amounts["nvidia.com/vcuda-memory"]) == total


@works
def memory_scaling(bed: SeedBed) -> None:
    """Half of the memory is offered where the file says 0.5, and what cannot be is named."""
    text = '{"nodeConfig": [{"name": "n", "deviceMemoryScaling": 0.5}]}'
    assert read_node_config("f", text, "n").scaling == Fraction(1, 2)
    (problem,) = read_node_config("f", text.replace("0.5", "1.5"), "n").problems
    assert "expected a number above 0 and at most 1" in problem


@clear_error
def binpack_as_it_stands(bed: SeedBed) -> None:
    """kubectl names the version that no server has any more."""
    with bed.space("v1beta1") as space:
        done = _create(bed, space, BINPACK)
        assert done.returncode
        assert 'no matches for kind "StatefulSet" in version "apps/v1beta1"' in done.stderr


@works
def binpack_runs(bed: SeedBed) -> None:
    """With apps/v1, three pods of 3 GiB run on one GPU, each on one alone."""
    with bed.space("binpack") as space:
        bed.create(space, BINPACK.replace("apps/v1beta1", "apps/v1"))
        found = bed.wait_phase(space, "Running", 3)
        given = bed.node.allocations(found)
        assert all(len(gpus) == 1 for each in given.values() for gpus in each.values())
        assert len({gpus for each in given.values() for gpus in each.values()}) == 1
        assert " 9/" in bed.type("kubectl inspect gpushare", check=True).stdout


@clear_error
def more_than_one_gpu_has(bed: SeedBed) -> None:
    with bed.space("too-much") as space:
        bed.create(space, dump(rest("huge", {"aliyun.com/gpu-mem": 41})))
        bed.cluster.wait_message(space, "huge", "No GPU is large enough")


@works
def four_gpus_of_three_gib(bed: SeedBed) -> None:
    """What the document could not have: four GPUs with 3 GiB on each."""
    wish = {"labels": {"aliyun.com/gpu-count": "4"}}
    with bed.space("four") as space:
        bed.create(space, dump(rest("four", {"aliyun.com/gpu-mem": 12}, metadata=wish)))
        (found,) = bed.wait_phase(space, "Running")
        (gpus,) = bed.node.allocations([found])["four"].values()
        assert len(gpus) == 4


@clear_error
def elastic_as_it_stands(bed: SeedBed) -> None:
    """kubectl names the field with the second colon."""
    with bed.space("two-colons") as space:
        done = bed.type(ELASTIC.format(space=space))
        assert done.returncode
        assert 'unknown field "spec.template.spec.containers[0].resources:"' in done.stderr


@works
def elastic_with_the_colon_mended(bed: SeedBed) -> None:
    with bed.space("elastic") as space:
        text = ELASTIC.format(space=space).replace("resources::", "resources:")
        bed.type(text, check=True)
        (found,) = bed.wait_phase(space, "Running")
        assert bed.models(found)


@works
def elastic_resources(bed: SeedBed) -> None:
    amounts = bed.node.node_object()["status"]["allocatable"]
    assert amounts["elasticgpu.io/gpu-core"] == amounts["elastic-gpu/gpu-percent"] == "800"
    assert read_count("gpu-memory", amounts["elasticgpu.io/gpu-memory"]) > 0


@works
def elastic_several_gpus(bed: SeedBed) -> None:
    with bed.space("multi") as space:
        bed.create(space, dump(rest("multi", {"elasticgpu.io/gpu-core": 200})))
        (found,) = bed.wait_phase(space, "Running")
        (gpus,) = bed.node.allocations([found])["multi"].values()
        assert len(gpus) == 2


@works
def model_is_honoured(bed: SeedBed) -> None:
    """Two GPUs of the one model that the annotation names, on the node that has it."""
    wish = {"annotations": {"nvidia.com/gpu.model": "Tesla T4"}}
    with bed.space("model") as space:
        bed.create(space, dump(rest("two", {"nvidia.com/gpu": 2}, metadata=wish)))
        (found,) = bed.wait_phase(space, "Running")
        assert bed.models(found) == {"Tesla T4"}


@works
def mixed_models_on_one_node(bed: SeedBed) -> None:
    """Two models of one node at once, each pod its own, with an unchanged kubelet."""
    pods = [
        rest(name, {"nvidia.com/gpu": 1}, metadata={"annotations": {"nvidia.com/gpu.model": model}})
        for name, model in (("t4", "Tesla T4"), ("a100", "NVIDIA A100-SXM4-40GB"))
    ]
    with bed.space("mixed") as space:
        bed.create(space, dump(*pods))
        found = bed.wait_phase(space, "Running", 2)
        given = {each["metadata"]["name"]: bed.models(each) for each in found}
        assert given == {"t4": {"Tesla T4"}, "a100": {"NVIDIA A100-SXM4-40GB"}}


@works
def whole_gpus_of_nvidia(bed: SeedBed) -> None:
    """nvidia.com/gpu is offered by the agent itself, so that no other device plugin is needed."""
    amounts = bed.node.node_object()["status"]["allocatable"]
    assert amounts["nvidia.com/gpu"] == str(len(bed.node.gpus))


@works
def quota_by_model(bed: SeedBed) -> None:
    """A namespace may hold one T4 and no more."""
    quota = {"quota-team": {"quota": {"T4": 1}}}
    path = "/api/v1/namespaces/kube-system/configmaps"
    wish = {"annotations": {"nvidia.com/use-gputype": "t4"}}
    with bed.plane.api() as api, bed.space("quota-team") as space:
        data = {"gpu_quota": json.dumps(quota)}
        api.create(path, {"metadata": {"name": "gpuquota"}, "data": data})
        try:
            whole = {"nvidia.com/vcuda-core": 100}
            wait_until(lambda: _is_refused(bed, space, wish), 20, lambda: "no quota in force")
            bed.create(space, dump(*(rest(name, whole, metadata=wish) for name in ("a", "b"))))
            bed.wait_phase(space, "Running", 1)
            (waiting,) = (
                each["metadata"]["name"]
                for each in bed.cluster.pods(space)
                if each["status"]["phase"] == "Pending"
            )
            bed.cluster.wait_message(space, waiting, "quota")
        finally:
            api.delete(f"{path}/gpuquota")


def _is_refused(bed: SeedBed, space: str, wish: dict[str, object]) -> bool:
    two = rest("two", {"nvidia.com/vcuda-core": 200}, metadata={**wish, "namespace": space})
    return not bed.cluster.filter(two, bed.node.node.name)


@works
def load_policy(bed: SeedBed) -> None:
    """A pod that asks for placement by load runs; a test of the cluster shows load avoided."""
    share = {"nvidia.com/vcuda-core": 20, "nvidia.com/vcuda-memory": 1000}
    wish = {"annotations": {"slicewise.io/policy": "load"}}
    with bed.space("load") as space:
        bed.create(space, dump(rest("load", share, metadata=wish)))
        bed.wait_phase(space, "Running")
    if not list((ROOT / "tests" / "e2e").glob("test_*load*.py")):
        raise partly("the policy is taken, and no test shows a busy GPU avoided on a real cluster")


@works
def limits_are_enforced(bed: SeedBed) -> None:
    """A CUDA program of gpu-manager's pod sees its share as the whole GPU, and meets its limit.

    The driver is the stand-in, as there is no GPU here; `tests/e2e/test_limits.py` tries more.
    """
    share = {"nvidia.com/vcuda-core": 50, "nvidia.com/vcuda-memory": 2048}
    with bed.space(SPACE) as space:
        made = make_pod(bed.node, "limited")
        (container,) = made["spec"]["containers"]
        container["resources"] = {"limits": share}
        bed.create(space, dump(made))
        bed.wait_phase(space, "Running")
        wanted = ("info", f"alloc {1024 * MIB}", f"alloc {2048 * MIB}")
        _, _, size, fits, exceeds = run_program(bed.node, "limited", *wanted)
        assert size[2] == 2048 * MIB
        assert (fits[0], exceeds[0]) == (0, OUT_OF_MEMORY)


@works
def default_runtime_is_not_needed(bed: SeedBed) -> None:
    """GPUs reach containers through CDI on a containerd whose default runtime is runc."""
    assert bed.node.identity() == "cdi"
    config = next(bed.node.node.folder.rglob("*containerd*.toml")).read_text()
    assert "nvidia" not in config


@clear_error
def scheduler_framework(bed: SeedBed) -> None:
    """An extender still; why, and what it costs, is said where a reader looks for it."""
    assert "scheduler framework" in (ROOT / "docs" / "faq.md").read_text()
