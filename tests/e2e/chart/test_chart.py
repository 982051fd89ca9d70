"""The chart's life on a real cluster, told in order: each test goes on where the last one ended.

The first test is the way in, as docs/install.md describes it.
"""

import json
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml

from e2e import gpu_nodes
from e2e.chart.chart_cluster import CHART, NAMESPACE, RELEASE, SETTLE, ChartCluster, read_example
from e2e.truth import held_gpus
from slicewise_testbed.errors import TestbedError

pytestmark = pytest.mark.cluster
# The examples of the five systems, and how many pods each makes.
EXAMPLES = {
    "nvidia-gpu-scheduler/two-of-a-model.yaml": 1,
    "gpu-manager/vcuda.yaml": 1,
    "gpu-admission/gpu-pod2.yaml": 1,
    "gpushare/binpack-1.yaml": 3,
    "elastic-gpu/cuda-gpu-test.yaml": 1,
}
LOAD = 200
# For five minutes kubelets repeat the amounts of plugins that are gone. Waiting for them is for
# runs that have the time: SLICEWISE_CHART_SETTLE=340.
KUBELET = 340
LOAD_NODES = tuple(gpu_nodes.register_node(f"load-{at:02}", gpu_nodes.A10, 4) for at in range(13))


@pytest.fixture(scope="module")
def before(cluster: ChartCluster) -> Mapping[str, Any]:
    """The Nodes as they were before anything of ours was installed."""
    return cluster.read_nodes()


def test_every_set_of_values_is_what_the_api_server_takes(cluster: ChartCluster) -> None:
    cluster.kubectl("create", "namespace", NAMESPACE)
    lines = cluster.kubectl("api-resources", "--no-headers").splitlines()
    served = {(version, kind) for version, _, kind in (line.split()[-3:] for line in lines)}
    objects = [
        each
        for values in (None, *sorted((CHART / "ci").glob("*-values.yaml")))
        for each in cluster.render(values)
        # What kinds of other software, or of newer servers, look like, this one cannot say.
        if (each["apiVersion"], each["kind"]) in served
    ]

    text = "\n---\n".join(map(json.dumps, objects))
    strict = ("--dry-run=server", "--validate=strict", "--output=name")
    # A dry run makes no namespaces, and finds those that are not there missing.
    there = cluster.kubectl("get", "namespaces", "--output=name").split()
    spaces = {f"namespace/{each['metadata'].get('namespace', NAMESPACE)}" for each in objects}
    made = sorted(spaces.difference(there))
    for name in made:
        cluster.kubectl("create", "namespace", name.removeprefix("namespace/"))
    told = cluster.kubectl("apply", *strict, "--filename=-", stdin=text)
    for name in made:
        cluster.kubectl("delete", name)

    assert len(told.splitlines()) == len(objects) > 300


def test_from_helm_install_to_containers_of_five_systems_with_their_gpus(
    cluster: ChartCluster, before: Mapping[str, Any]
) -> None:
    # A namespace in which the agent may use the host's folders; everything else is `restricted`.
    enforce = "pod-security.kubernetes.io/enforce=privileged"
    cluster.kubectl("label", "namespace", NAMESPACE, enforce)

    # Two replicas of the scheduler by default; --wait ends when all of them are available.
    began = time.monotonic()
    cluster.helm("install", RELEASE, str(CHART), cluster.values(), "--wait", "--timeout=180s")
    print(f"helm install --wait took {time.monotonic() - began:.1f} s")

    # The manifests of five systems, unchanged.
    cluster.kubectl("create", "namespace", "examples")
    for name in EXAMPLES:
        text = "\n---\n".join(json.dumps(each) for each in read_example(name))
        cluster.kubectl("apply", "--namespace=examples", "--filename=-", stdin=text)

    # Every container has exactly the GPUs that its pod's signed record names.
    for pod in cluster.wait_running("examples", sum(EXAMPLES.values())):
        for container, uuids in read_record(pod).items():
            assert uuids
            found = read_environment(cluster, pod, container)
            if "GPU" in found:
                # elastic-gpu tells a container its GPUs by a hash alone.
                assert found["NVIDIA_VISIBLE_DEVICES"] == "none"
            else:
                assert found["NVIDIA_VISIBLE_DEVICES"].split(",") == uuids


def test_metrics_api_page_and_tools_answer(cluster: ChartCluster) -> None:
    cluster.wait("the metrics API has no pods", lambda: len(list_resources(cluster)) >= 7)
    reports = cluster.kubectl("get", "nodereports", "--output=json")
    inspected = cluster.command("kubectl-inspect-gpushare", "-d")

    assert {each["metadata"]["name"] for each in json.loads(reports)["items"]} == {"gpu"}
    assert "binpack-1-0" in inspected
    page = f"/api/v1/namespaces/{NAMESPACE}/pods/{find_page(cluster)}:8485/proxy/readyz"
    assert cluster.kubectl("get", "--raw", page).strip() == "ok"


def test_helm_test_finds_nothing_wrong(cluster: ChartCluster) -> None:
    printed = cluster.helm("test", RELEASE, "--timeout=120s")

    suites = re.findall(r"TEST SUITE:\s+(\S+).*?Phase:\s+(\w+)", printed, re.DOTALL)
    assert dict(suites)["slicewise-test-doctor"] == "Succeeded"
    assert dict(suites)["slicewise-test-version"] == "Succeeded"


def test_other_scheduler_takes_over_when_the_leading_pod_is_killed(cluster: ChartCluster) -> None:
    leader = find_leader(cluster)
    cluster.kubectl(
        "delete", "pod", leader, f"--namespace={NAMESPACE}", "--grace-period=0", "--force"
    )

    apply_pods(cluster, "second", [share("after-the-leader", "gpu")])

    cluster.wait_running("second", 1)
    assert find_leader(cluster) != leader


def test_upgrade_under_load_loses_and_overcommits_nothing(cluster: ChartCluster) -> None:
    cluster.add_load_nodes(*LOAD_NODES)
    pods = [share(f"load-{at:03}") for at in range(LOAD)]
    # Every twentieth goes to the node whose agent is replaced.
    real = [share(f"real-{at}", "gpu") for at in range(LOAD // 20)]

    with ThreadPoolExecutor(2) as arrivals:
        arriving = [
            arrivals.submit(arrive, cluster, "load", pods, 10),
            arrivals.submit(arrive, cluster, "real", real, 1),
        ]
        # Every component is replaced: each pod template gets another annotation.
        cluster.helm(
            "upgrade", RELEASE, str(CHART), cluster.values(), "--wait", "--timeout=240s",
            *(f"--set-string={name}.podAnnotations.revision=2"
              for name in ("scheduler", "agent", "metricsApi", "dashboard", "webhook")),
        )  # fmt: skip
        for each in arriving:
            each.result()

    # A pod that a kubelet admits while its node's agent is down fails for good, and no other does.
    names = {pod["metadata"]["name"] for pod in real}
    cluster.wait(
        "pods of the real node neither run nor were rejected",
        lambda: names == running(cluster, "real") | rejected(cluster, "real").keys(),
    )
    print("rejected while the agent was down:", rejected(cluster, "real") or "none")
    placed = cluster.wait_running("load", LOAD, 180)
    assert all("revision" in pod["metadata"]["annotations"] for pod in own_pods(cluster))
    sizes = {node.name: [gpu_nodes.A10[1]] * 4 for node in LOAD_NODES}
    for gpus in held_gpus(placed, sizes).values():
        assert all(cores <= 100 and memory <= gpu_nodes.A10[1] for cores, memory in gpus)
    # Whatever ran before runs on.
    assert {pod["status"]["phase"] for pod in cluster.pods("examples")} == {"Running"}


def test_webhook_takes_the_place_of_policies(cluster: ChartCluster) -> None:
    # As on clusters that are too old for them.
    changed = cluster.values(admission={"mutation": "webhook", "validation": "webhook"})
    cluster.helm("upgrade", RELEASE, str(CHART), changed, "--wait", "--timeout=120s")
    misspelt = share("misspelt", "gpu")
    misspelt["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpus": "1"}

    def refused() -> bool:
        try:
            apply_pods(cluster, "webhook", [misspelt], "--dry-run=server")
        except TestbedError as error:
            told = str(error)
            assert "probably nvidia.com/gpu was meant" in told
            return 'webhook "requests.slicewise.io" denied the request' in told
        return False

    cluster.wait("the webhook refuses nothing", refused)
    apply_pods(cluster, "webhook", [share("by-the-webhook", "gpu")])
    (pod,) = cluster.wait_running("webhook", 1)
    assert pod["spec"]["schedulerName"] == "slicewise-scheduler"
    if "mutatingadmissionpolicies" in cluster.kubectl("api-resources", "--output=name"):
        assert not cluster.kubectl("get", "mutatingadmissionpolicies", "--output=name")
    cluster.kubectl("delete", "namespace", "webhook")


def test_rollback_returns_to_the_first_revision(cluster: ChartCluster) -> None:
    cluster.kubectl("delete", "namespace", "load", "real", "--wait=false")
    cluster.helm("rollback", RELEASE, "1", "--wait", "--timeout=240s")

    annotations = [pod["metadata"].get("annotations", {}) for pod in own_pods(cluster)]
    assert not any("revision" in each for each in annotations)


def test_scheduler_of_the_cluster_asks_the_extender_when_it_is_told_to(
    cluster: ChartCluster,
) -> None:
    scheduler = {"mode": "existing"}
    changed = cluster.values(scheduler=scheduler, extender={"insecure": True})
    cluster.helm("upgrade", RELEASE, str(CHART), changed, "--wait", "--timeout=240s")
    where = ("service", "slicewise-extender", f"--namespace={NAMESPACE}")
    address = cluster.kubectl("get", *where, "--output=jsonpath={.spec.clusterIP}")

    # What NOTES say belongs into the scheduler's configuration.
    url = f"--url=http://{address}:3456"
    config = yaml.safe_load(cluster.command("slicewise", "scheduler-config", "--dialect=all", url))
    cluster.plane.start_scheduler({"extenders": config["extenders"]})
    try:
        apply_pods(cluster, "existing", [share("by-the-default-scheduler", "gpu")])
        (pod,) = cluster.wait_running("existing", 1)
    finally:
        cluster.plane.start_scheduler({})

    assert pod["spec"]["schedulerName"] == "default-scheduler"
    (uuids,) = read_record(pod).values()
    assert read_environment(cluster, pod, "main")["NVIDIA_VISIBLE_DEVICES"].split(",") == uuids
    cluster.kubectl("delete", "namespace", "existing")


def test_uninstall_leaves_every_node_as_it_was(
    cluster: ChartCluster, before: Mapping[str, Any]
) -> None:
    running = {pod["metadata"]["uid"] for pod in cluster.pods("examples")}
    cluster.remove_load_nodes(*LOAD_NODES)
    cluster.helm("uninstall", RELEASE, "--wait", "--timeout=120s")

    assert {pod["metadata"]["uid"] for pod in cluster.pods("examples")} == running
    assert {pod["status"]["phase"] for pod in cluster.pods("examples")} == {"Running"}
    cluster.kubectl("delete", "namespace", "examples", "second")
    # Labels and annotations are off when helm returns, but for the trace of what is to follow.
    assert "slicewise.io/gpus" not in cluster.read_nodes()["gpu"]["metadata"]["annotations"]

    # What goes on for kubelets' sake ends by itself, with its account and rights.
    cluster.wait("what cleans the Nodes stays", lambda: not left_behind(cluster), SETTLE + 60)
    same = (lambda nodes: nodes) if SETTLE >= KUBELET else strip_amounts
    cluster.wait(
        f"Nodes differ: {json.dumps(cluster.read_nodes())}\nfrom {json.dumps(before)}",
        lambda: same(cluster.read_nodes()) == same(before),
        30,
    )


def read_record(pod: Mapping[str, Any]) -> dict[str, list[str]]:
    """The UUIDs of every container's GPUs, by the pod's record."""
    record = json.loads(pod["metadata"]["annotations"]["slicewise.io/allocation"])
    return {name: [gpu[1] for gpu in gpus] for name, gpus in record["containers"].items()}


def read_environment(
    cluster: ChartCluster, pod: Mapping[str, Any], container: str
) -> dict[str, str]:
    """The variables that a program in the container sees."""
    where = (f"--namespace={pod['metadata']['namespace']}", pod["metadata"]["name"])
    lines = cluster.kubectl("exec", *where, f"--container={container}", "--", "/bin/env")
    return dict(line.split("=", 1) for line in lines.splitlines() if "=" in line)


def list_resources(cluster: ChartCluster) -> list[Any]:
    """The pods with GPUs, by nvidia-gpu-scheduler's API."""
    path = "/apis/metrics.nvidia.com/v1alpha1/podresources"
    found: list[Any] = json.loads(cluster.kubectl("get", "--raw", path)).get("items") or []
    return found


def find_page(cluster: ChartCluster) -> str:
    """The pod of the page."""
    names = [pod["metadata"]["name"] for pod in cluster.pods(NAMESPACE)]
    return next(name for name in names if "dashboard" in name)


def find_leader(cluster: ChartCluster) -> str:
    """The pod of the scheduler that decides."""
    holder = cluster.kubectl(
        "get", "lease", "slicewise-scheduler", f"--namespace={NAMESPACE}",
        "--output=jsonpath={.spec.holderIdentity}",
    )  # fmt: skip
    return holder.partition("_")[0]


def share(name: str, node: str | None = None) -> dict[str, Any]:
    """A pod of a fifth of a GPU, for the nodes of the load or for the named one."""
    where: dict[str, Any] = {
        "nodeSelector": {"nvidia-device-enable": "enable"},
        "tolerations": [{"key": "load", "operator": "Exists"}],
    }
    if node is not None:
        where = {"nodeSelector": {"kubernetes.io/hostname": node}}
    limits = {"nvidia.com/vcuda-core": "20", "nvidia.com/vcuda-memory": "4000"}
    container = {
        "name": "main",
        "image": "nvidia/cuda:10.0-base",
        "command": ["sleep", "100000"],
        "resources": {"limits": limits},
    }
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container], **where}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def arrive(
    cluster: ChartCluster, namespace: str, pods: list[dict[str, Any]], together: int
) -> None:
    """The pods are created a few at a time."""
    for at in range(0, len(pods), together):
        apply_pods(cluster, namespace, pods[at : at + together])


def running(cluster: ChartCluster, namespace: str) -> set[str]:
    """The pods of a namespace that run."""
    pods = cluster.pods(namespace)
    return {pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"}


def rejected(cluster: ChartCluster, namespace: str) -> dict[str, str]:
    """The pods of a namespace that a kubelet did not admit, each with its reason."""
    told = cluster.kubectl("get", "events", f"--namespace={namespace}", "--output=json")
    return {
        event["involvedObject"]["name"]: event["message"]
        for event in json.loads(told)["items"]
        if event["reason"] == "UnexpectedAdmissionError" or event["reason"].startswith("OutOf")
    }


def own_pods(cluster: ChartCluster) -> list[dict[str, Any]]:
    """The pods of the release that are not about to end, and no test's."""
    return [
        pod
        for pod in cluster.pods(NAMESPACE)
        if "deletionTimestamp" not in pod["metadata"]
        and pod["metadata"]["labels"]["app.kubernetes.io/component"] not in ("test", "withdraw")
    ]


def apply_pods(
    cluster: ChartCluster, namespace: str, pods: list[dict[str, Any]], *flags: str
) -> None:
    """The pods are created in a namespace that is made for them."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    cluster.kubectl("apply", "--filename=-", stdin=json.dumps(space))
    documents = "\n---\n".join(map(json.dumps, pods))
    where = f"--namespace={namespace}"
    cluster.kubectl("create", where, "--filename=-", *flags, stdin=documents)


def left_behind(cluster: ChartCluster) -> str:
    """What a removed release has left, but for keys and certificates."""
    kinds = "deployments,daemonsets,jobs,pods,serviceaccounts,roles,rolebindings"
    ours = "--selector=app.kubernetes.io/part-of=slicewise"
    found = cluster.kubectl("get", kinds, f"--namespace={NAMESPACE}", ours, "--output=name")
    wide = "clusterroles,clusterrolebindings,apiservices,validatingadmissionpolicies"
    return found + cluster.kubectl("get", wide, ours, "--output=name")


def strip_amounts(nodes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Nodes without resources of which nothing can be allocated."""
    stripped = {}
    for name, node in nodes.items():
        status = dict(node["status"])
        there = {key for key, amount in status["allocatable"].items() if amount != "0"}
        for kind in ("capacity", "allocatable"):
            status[kind] = {key: amount for key, amount in status[kind].items() if key in there}
        stripped[name] = {**node, "status": status}
    return stripped
