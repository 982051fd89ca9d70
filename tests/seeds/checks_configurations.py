"""Scheduler configurations and gpu-manager's file, as the documents print them."""

import yaml

from seeds.bed import SeedBed, dump, rest, wire_everything
from seeds.checks_commands import diagnose_scheduler
from seeds.statement import clear_error, works
from slicewise.nodeagent.configuration import detect_host, read_node_config

POLICY = """{
  "kind": "Policy",
  "apiVersion": "v1",
  "predicates": [
    {
      "name": "PodFitsHostPorts"
    },
    {
      "name": "PodFitsResources"
    },
    {
      "name": "NoDiskConflict"
    },
    {
      "name": "MatchNodeSelector"
    },
    {
      "name": "HostName"
    }
  ],
  "extenders": [
    {
      "urlPrefix": "http://<gpu-admission ip>:<gpu-admission port>/scheduler",
      "apiVersion": "v1beta1",
      "filterVerb": "predicates",
      "enableHttps": false,
      "nodeCacheCapable": false
    }
  ],
  "hardPodAffinitySymmetricWeight": 10,
  "alwaysCheckAllPredicates": false
}
"""
NGS = """apiVersion: kubescheduler.config.k8s.io/v1alpha2
...
extenders:
  - urlPrefix: 'https://<kube-apiserver>:6443/apis/metrics.nvidia.com/v1alpha1/schedule'
    filterVerb: filter
    prioritizeVerb: prioritize
    preemptVerb: preempt
    weight: 1
    enableHttps: true
    nodeCacheCapable: true
    ignorable: true
    TLSConfig:
      CAFile: /etc/kubernetes/ssl/ca.pem
      CertFile: /etc/kubernetes/ssl/admin.pem
      KeyFile: /etc/kubernetes/ssl/admin-key.pem
profiles:
- schedulerName: default-scheduler
"""
ELASTIC = """{
  "urlPrefix": "http://<kube-apiserver-svc>/api/v1/namespaces/kube-system/services/elastic-gpu-scheduler/proxy/scheduler",
  "filterVerb": "filter",
  "prioritizeVerb": "priorities",
  "bindVerb": "bind",
  "weight": 1,
  "enableHttps": false,
  "nodeCacheCapable": true,
  "managedResources": [
    {
      "name": "elastic-gpu/gpu-percent"
    }
  ]
}
"""
CONFIGMAP = """apiVersion: v1
kind: ConfigMap
metadata:
  name: gpu-manager-config
  namespace: kube-system
data:
  config.json: |
    {
        "nodeConfig": [
            {
                "name": "k8s01", ## 需要匹配配置的节点名称，没有配置节点的将按默认配置执行
                "deviceMemoryScaling": 1, ## 设备内存缩放比，目前只支持0-1之间的小数，例如0.5会使该节点上的gpu设备保留50%的显存，默认为1
                "containerRuntimeEndpoint": "/var/run/containerd/containerd.sock", ## 容器运行时接口套接字, 默认自动检测docker、containerd
                "cgroupDriver": "systemd" ## 配置节点cgroup驱动：systemd、cgroupfs
            },{
                "name": "k8s02",
                "deviceMemoryScaling": 1,
                "containerRuntimeEndpoint": "/var/run/containerd/containerd.sock",
                "cgroupDriver": "systemd"
            }
        ]
    }
"""  # noqa: E501 -- as it stands in the document


def _convert(bed: SeedBed, text: str, *flags: str) -> tuple[int, str, str]:
    bed.write("config", text)
    done = bed.type(f"slicewise scheduler-config --from config {' '.join(flags)}")
    return done.returncode, done.stdout, done.stderr


@clear_error
def policy_with_placeholders(bed: SeedBed) -> None:
    """The placeholder is named; with --url in its place, the policy converts."""
    code, _, said = _convert(bed, POLICY)
    assert code
    assert "http://<gpu-admission ip>:<gpu-admission port>/scheduler" in said
    assert "pass --url" in said
    code, printed, _ = _convert(bed, POLICY, "--url", "http://127.0.0.1:3456")
    assert code == 0
    assert yaml.safe_load(printed)["kind"] == "KubeSchedulerConfiguration"


@clear_error
def policy_predicates(bed: SeedBed) -> None:
    _, _, said = _convert(bed, POLICY, "--url", "http://127.0.0.1:3456")
    assert "predicates is not carried over: plugins took the place" in said
    assert "hardpodaffinitysymmetricweight is not carried over" in said


@clear_error
def policy_on_this_cluster(bed: SeedBed) -> None:
    """doctor names the Policy, the version that read it last, and the command that converts it."""
    bed.write("scheduler-policy-config.json", POLICY)
    told = bed.type("kubectl slicewise doctor --scheduler-config scheduler-policy-config.json")
    assert told.returncode == 1
    assert f"read up to 1.22; this cluster is 1.{bed.minor}" in told.stdout
    assert "slicewise scheduler-config --from" in told.stdout


@works
def configuration_for_new_clusters(bed: SeedBed) -> None:
    """kube-scheduler itself takes what is printed for the systems of this document."""
    url = bed.cluster.url()
    printed = bed.type(f"slicewise scheduler-config --dialect tkestack --url {url}", check=True)
    _schedule_with(bed, printed.stdout)
    wire_everything(bed)


@works
def predicates_verb_places_pods(bed: SeedBed) -> None:
    """The document's policy, converted, places a pod by the one verb it has."""
    code, printed, said = _convert(bed, POLICY, "--url", bed.cluster.url())
    assert code == 0, said
    _schedule_with(bed, printed)
    limits = {"nvidia.com/vcuda-core": 20, "nvidia.com/vcuda-memory": 1000}
    with bed.space("predicates") as space:
        bed.create(space, dump(rest("placed", limits)))
        (found,) = bed.wait_phase(space, "Running")
    assert found["metadata"]["annotations"]["nvidia.com/predicate-node"]
    wire_everything(bed)


def _schedule_with(bed: SeedBed, text: str) -> None:
    config = yaml.safe_load(text)
    kept = ("extenders", "profiles", "percentageOfNodesToScore")
    bed.plane.start_scheduler({key: config[key] for key in kept if key in config})


@clear_error
def their_configuration_as_it_stands(bed: SeedBed) -> None:
    """Neither the ellipsis nor the old version stops it; the placeholder is named."""
    code, _, said = _convert(bed, NGS)
    assert code
    assert "https://<kube-apiserver>:6443/apis/metrics.nvidia.com" in said
    bed.write("old.yaml", NGS)
    told = bed.type("kubectl slicewise doctor --scheduler-config old.yaml").stdout
    assert "v1alpha2, which schedulers read up to 1.18" in told


@works
def their_configuration_converted(bed: SeedBed) -> None:
    code, printed, said = _convert(bed, NGS, "--url", bed.plane.server)
    assert code == 0, said
    (extender,) = yaml.safe_load(printed)["extenders"]
    assert extender["enableHTTPS"]
    assert extender["ignorable"]
    assert extender["tlsConfig"]["caFile"] == "/etc/kubernetes/ssl/ca.pem"
    assert extender["preemptVerb"] == "preempt"


@clear_error
def elastic_extender_as_it_stands(bed: SeedBed) -> None:
    code, _, said = _convert(bed, ELASTIC)
    assert code
    assert "http://<kube-apiserver-svc>/api/v1/namespaces" in said


@works
def elastic_extender_converted(bed: SeedBed) -> None:
    """The fragment becomes a configuration that kube-scheduler runs with, and places a pod."""
    code, printed, said = _convert(bed, ELASTIC, "--url", bed.cluster.url())
    assert code == 0, said
    (extender,) = yaml.safe_load(printed)["extenders"]
    assert extender["urlPrefix"] == f"{bed.cluster.url()}/scheduler"
    _schedule_with(bed, printed)
    with bed.space("elastic-policy") as space:
        bed.create(space, dump(rest("placed", {"elastic-gpu/gpu-percent": 20})))
        bed.wait_phase(space, "Running")
    wire_everything(bed)


@clear_error
def kubeadm_manifest_with_policy(bed: SeedBed) -> None:
    """doctor names the flag in the scheduler's pod; the volumes around it are harmless."""
    flag = "--policy-config-file=/etc/kubernetes/scheduler-policy-config.json"
    findings = diagnose_scheduler(bed, [flag])
    assert any("is started with --policy-config-file" in line for line in findings), findings


@clear_error
def systemd_unit_with_policy(bed: SeedBed) -> None:
    """The flag of a unit is seen by nobody in the cluster: doctor checks the file it names."""
    policy_on_this_cluster(bed)


@works
def configmap_with_comments(bed: SeedBed) -> None:
    """kubectl takes it, comments and all, and the agent reads what it says."""
    bed.write("deploy/configmap.yaml", CONFIGMAP)
    bed.type("kubectl create -f ./deploy/configmap.yaml", check=True)
    with bed.plane.api() as api:
        path = "/api/v1/namespaces/kube-system/configmaps/gpu-manager-config"
        text = api.get(path)["data"]["config.json"]
        api.delete(path)
    config = read_node_config("config.json", text, "k8s01")
    assert config.problems == ()
    assert config.cgroup_driver == "systemd"


@works
def node_config_is_read(bed: SeedBed) -> None:
    """Each node its own entry, and a node without one is left as the host shows."""
    text = yaml.safe_load(CONFIGMAP)["data"]["config.json"]
    first = read_node_config("f", text, "k8s01")
    assert str(first.runtime) == "/var/run/containerd/containerd.sock"
    assert first.scaling == 1
    none = read_node_config("f", text, "k8s03")
    assert (none.runtime, none.scaling, none.cgroup_driver) == (None, None, None)


@works
def host_is_detected(bed: SeedBed) -> None:
    """The agent of this bed was told no socket and no driver, and works."""
    assert bed.node.agent_ready()
    assert detect_host().cgroups.version in (1, 2)
