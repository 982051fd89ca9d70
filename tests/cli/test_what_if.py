import json

import pytest
import yaml
from click.testing import CliRunner

from extender.living import Cluster
from slicewise.cli.main import main
from slicewise.cli.what_if import read_files
from slicewise.kube.dra.slices import SliceDevice, write_spec
from slicewise.model import MiB
from slicewise.model.claim import DRIVER

CAPACITY = {
    "cpu": "64",
    "memory": "512Gi",
    "pods": "110",
    "slicewise.io/gpu": "200",
    "slicewise.io/cores": "200",
    "slicewise.io/memory": "81920",
    "aliyun.com/gpu-mem": "4",
    "aliyun.com/gpu-count": "2",
}
SHARE = {"slicewise.io/cores": "60", "slicewise.io/memory": "1024"}


def pod_spec(limits=SHARE, **more):
    container = {"name": "main", "image": "i", "resources": {"limits": limits}}
    return {"containers": [container], **more}


def workload(kind, name="w", template=None, **spec):
    template = {"spec": template or pod_spec()}
    return {"kind": kind, "metadata": {"name": name}, "spec": {"template": template, **spec}}


def pod(name="p", limits=SHARE, **more):
    return {"kind": "Pod", "metadata": {"name": name}, "spec": pod_spec(limits, **more)}


@pytest.fixture(scope="module")
def living():
    """Two nodes of two GPUs, each with room for one share of 60 percent."""
    with Cluster(nodes=2, gpus=2, capacity=CAPACITY) as cluster:
        yield cluster.wait_ready()


def run(living, tmp_path, *documents, words=()):
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    config = living.playground.write_kubeconfig(tmp_path / "kubeconfig")
    arguments = ["what-if", "-f", str(path), "--kubeconfig", str(config), *words]
    return CliRunner().invoke(main, arguments)


def test_pod_that_fits_is_told_its_node_and_gpus(living, tmp_path):
    result = run(living, tmp_path, pod())

    assert result.exit_code == 0, result.output
    assert result.output.startswith("it fits\n  default/p: node n")
    assert "main: 60 percent and 1024 MiB of gpu" in result.output


def test_replicas_are_placed_one_after_the_other_until_nothing_is_left(living, tmp_path):
    result = run(living, tmp_path, workload("Deployment", replicas=6), words=("-o", "json"))

    answer = json.loads(result.stdout)
    assert result.exit_code == 1
    assert answer["fitting"] == 4
    places = {(each["node"], *each["gpus"]["main"]) for each in answer["pods"][:4]}
    assert places == {("n0", 0), ("n0", 1), ("n1", 0), ("n1", 1)}
    assert answer["pods"][4]["smallestChange"]["ask"] == {"cores": 40}
    assert [each["fits"] for each in answer["pods"][4:]] == [False, False]


def test_refused_replicas_are_told_together(living, tmp_path):
    result = run(living, tmp_path, workload("StatefulSet", "s", replicas=6))

    assert result.output.startswith("4 of 6 pods fit\n")
    assert "default/s-4 and 1 more: no node for main: 60 percent" in result.output
    assert (
        "smallest change: ask for 40 percent of each GPU instead of 60, "
        "as slicewise.io/cores: 40 (node n0)"
    ) in result.output


def test_nothing_is_left_behind(living, tmp_path):
    before = living.ask("/scheduler/status")[1]

    result = run(living, tmp_path, pod(), words=("--url", living.url))

    assert result.exit_code == 0
    assert json.loads(living.ask("/scheduler/status")[1]) == json.loads(before)
    assert living.playground.objects("pods") == []


def test_extender_and_api_foretell_the_same(living, tmp_path):
    job = workload("Job", parallelism=3, completions=2)
    documents = (pod(), {"kind": "Service", "metadata": {"name": "s"}}, job)

    by_api = run(living, tmp_path, *documents, words=("-o", "json"))
    by_url = run(living, tmp_path, *documents, words=("-o", "json", "--url", living.url))

    assert len(json.loads(by_api.stdout)["pods"]) == 3
    assert json.loads(by_api.stdout) == json.loads(by_url.stdout)


def test_daemon_set_is_placed_once_on_every_node(living, tmp_path):
    result = run(living, tmp_path, workload("DaemonSet"), words=("-o", "json"))

    assert [each["node"] for each in json.loads(result.stdout)["pods"]] == ["n0", "n1"]


def test_taints_and_selectors_leave_nodes_out(living, tmp_path):
    result = run(living, tmp_path, pod(nodeSelector={"zone": "b"}))

    assert result.exit_code == 1
    assert "the scheduler itself leaves out 2: 2: no label zone=b" in result.output


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        pytest.param({"elasticgpu.io/gpu-core": "10"}, "offers no elasticgpu.io/gpu-core", id="no"),
        pytest.param({"aliyun.com/gpu-mem": "5"}, "insufficient aliyun.com/gpu-mem", id="too-few"),
    ],
)
def test_sums_of_resources_leave_nodes_out_before_gpus_are_looked_at(
    living, tmp_path, limits, reason
):
    result = run(living, tmp_path, pod(limits=limits))

    assert result.exit_code == 1
    assert f"the scheduler itself leaves out 2: 2: {reason}" in result.output


def test_change_is_told_even_where_the_sums_fell_short(living, tmp_path):
    limits = {"slicewise.io/cores": "50", "slicewise.io/memory": "90000"}
    result = run(living, tmp_path, pod(limits=limits))

    assert "2: insufficient slicewise.io/memory" in result.output
    assert "smallest change: ask for 40960 MiB of each GPU instead of 90000" in result.output


def test_resource_that_schedulers_ignore_leaves_no_node_out(living, tmp_path):
    limits = {"nvidia.com/vcuda-core": "20", "nvidia.com/vcuda-memory": "100"}

    assert run(living, tmp_path, pod(limits=limits)).exit_code == 0


def test_files_and_folders_are_read_in_order(tmp_path):
    (tmp_path / "b.yml").write_text(yaml.safe_dump(pod("second")))
    (tmp_path / "a.json").write_text(json.dumps(pod("first")))
    (tmp_path / "notes.txt").write_text("not: [")

    found = read_files(tmp_path, tmp_path / "a.json").templates

    assert [each.name for each in found] == ["first", "second", "first"]


def test_replicas_can_be_changed(living, tmp_path):
    result = run(living, tmp_path, workload("Deployment"), words=("--replicas", "5"))

    assert result.output.startswith("4 of 5 pods fit\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [", "not YAML", id="yaml"),
        pytest.param("[1]", "expected a Kubernetes object", id="no-object"),
        pytest.param("", "expected a pod", id="empty"),
        pytest.param("kind: Pod", "expected containers", id="no-containers"),
        pytest.param(
            "{kind: Deployment, spec: {replicas: x, template: {spec: {containers: [{}]}}}}",
            "replicas='x': expected a whole number",
            id="replicas",
        ),
    ],
)
def test_bad_manifest_is_exit_code_2(tmp_path, text, message):
    path = tmp_path / "pods.yaml"
    path.write_text(text)

    result = CliRunner().invoke(main, ["what-if", "-f", str(path)])

    assert result.exit_code == 2
    assert message in result.output


def test_misspelt_resource_never_fits(living, tmp_path):
    result = run(living, tmp_path, pod(limits={"nvidia.com/vcuda-mem": "20"}))

    assert result.exit_code == 2
    assert f"{tmp_path / 'pods.yaml'}: Pod p: container main: nvidia.com/vcuda-mem" in result.output
    assert "probably nvidia.com/vcuda-memory was meant" in result.output


def test_unreadable_request_is_exit_code_2(living, tmp_path):
    result = run(living, tmp_path, pod(limits={"slicewise.io/cores": "150"}))

    assert result.exit_code == 2
    assert "slicewise.io/cores=150" in result.output


@pytest.mark.parametrize(
    ("document", "counts"),
    [
        pytest.param(pod(), [1], id="pod"),
        pytest.param(workload("ReplicaSet"), [1], id="default-replicas"),
        pytest.param(workload("Job", parallelism=5), [5], id="job"),
        pytest.param(workload("MPIJob", replicas=2), [2], id="unknown-workload"),
        pytest.param({"kind": "List", "items": [pod(), pod("q")]}, [1, 1], id="list"),
        pytest.param(
            {
                "kind": "CronJob",
                "metadata": {"name": "c"},
                "spec": {"jobTemplate": {"spec": workload("Job", parallelism=2)["spec"]}},
            },
            [2],
            id="cron-job",
        ),
    ],
)
def test_every_workload_has_its_number_of_pods(tmp_path, document, counts):
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump(document))

    assert [each.count for each in read_files(path).templates] == counts


# Claims


def share_template(name="half", cores="50", **more):
    exactly = {
        "deviceClassName": DRIVER,
        "capacity": {"requests": {"cores": cores, "memory": "1Gi"}},
        **more,
    }
    devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
    return {
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": devices}},
    }


def claiming(name="p", template="half"):
    return pod(name, {}, resourceClaims=[{"name": "g", "resourceClaimTemplateName": template}])


@pytest.fixture(scope="module")
def offering():
    """Two nodes that offer two GPUs each to claims."""
    with Cluster(nodes=2, gpus=2, capacity=CAPACITY) as cluster:
        api = cluster.wait_ready().playground
        for node in ("n0", "n1"):
            devices = [SliceDevice(f"{node}-{at}", MiB(40960), {"index": at}) for at in range(2)]
            body = {"metadata": {"name": node}, "spec": write_spec(node, devices, 1)}
            api.create("resourceslices", body)
        api.create("deviceclasses", {"metadata": {"name": DRIVER}, "spec": {}})
        api.create("resourceclaimtemplates", share_template("known", "100"))
        yield cluster


def test_pod_with_a_claim_is_told_its_node_and_gpu(offering, tmp_path):
    result = run(offering, tmp_path, share_template(), claiming())

    assert result.exit_code == 0, result.output
    assert result.output == ("it fits\n  default/p: node n0, g: 50 percent and 1024 MiB of gpu 0\n")


def test_claims_of_earlier_pods_count_for_later_ones(offering, tmp_path):
    template = claiming(template="known")["spec"]
    several = workload("Deployment", replicas=5, template=template)
    result = run(offering, tmp_path, several, words=("-o", "json"))

    told = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [each.get("node") for each in told["pods"]] == ["n0", "n0", "n1", "n1", None]
    (request,) = told["pods"][4]["claims"][0]["requests"]
    assert request["nodes"][0]["gpus"][0]["missing"] == ["100 percent"]


def test_claim_that_fits_nowhere_is_told_per_node_what_lacks(offering, tmp_path):
    result = run(offering, tmp_path, share_template(cores="120"), claiming())

    assert result.exit_code == 1
    assert "default/p: no node for g: 120 percent and 1024 MiB of a GPU" in result.output
    assert "0 of 2 nodes that offer GPUs to claims can take it" in result.output
    assert "gpu 1: lacks 20 percent" in result.output


def test_nodes_that_the_scheduler_leaves_out_take_no_claims(offering, tmp_path):
    only = claiming()
    only["spec"]["nodeName"] = None
    only["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n1"}
    result = run(offering, tmp_path, share_template(), only)

    assert "default/p: node n1, g: 50 percent" in result.output, result.output


def test_template_that_is_nowhere_is_exit_code_2(offering, tmp_path):
    result = run(offering, tmp_path, claiming(template="none"))

    assert result.exit_code == 2
    assert "claim g: there is no such template, neither in the cluster nor in" in result.output


def test_claims_cannot_be_asked_of_an_extender_alone(offering, tmp_path):
    result = run(offering, tmp_path, claiming(), words=("--url", offering.url))

    assert result.exit_code == 2
    assert "its claims are known to the API alone; leave --url out" in result.output
