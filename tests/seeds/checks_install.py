"""Building and installing: by the chart and the image of this repository, under the users' words.

The manifests that the documents apply are files of the originals. What is tried here is that their
programs run under the same names and flags, as processes of the node or beside the control plane,
and that a real cluster takes the chart that stands for those files.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from seeds.bed import ROOT, SeedBed
from seeds.checks_commands import run_extender
from seeds.statement import missing, partly, works
from slicewise_testbed.testbed import wait_until

CHART = ROOT / "deploy" / "chart" / "slicewise"
APPS = "/apis/apps/v1/namespaces/kube-system"
Object = dict[str, Any]
# In a pod the kubeconfig would be the service account's.
ENVIRONMENT = {"PORT": "{port}", "KUBECONFIG": "{kubeconfig}"}


def _make(target: str) -> str:
    """What make printed; it has ended well."""
    done = subprocess.run(["make", *target.split()], cwd=ROOT, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def _need_recipe(target: str, program: str) -> None:
    """The target is there and runs the program that tests/deploy and the chart's tests run."""
    assert program in _make(f"-n {target}"), target


@works
def make_build(bed: SeedBed) -> None:
    """Wheels and source archives of product and playground."""
    _make("build")
    built = {path.suffix for path in (ROOT / "dist").iterdir()}
    assert {".whl", ".gz"} <= built


@works
def make_image(bed: SeedBed) -> None:
    """The archive itself is built, imported and run by tests/e2e/chart."""
    _need_recipe("img", "supply/build_image.py amd64")


@works
def make_image_arm(bed: SeedBed) -> None:
    _need_recipe("img-arm", "supply/build_image.py arm64")


@works
def make_all(bed: SeedBed) -> None:
    _need_recipe("all REGISTRY=docker.io/yourname", "supply/build_image.py")


@works
def make_alone(bed: SeedBed) -> None:
    """`make` alone lists what there is, so that nobody builds by accident."""
    assert "make test" in _make("")


@works
def prebuilt_image(bed: SeedBed) -> None:
    raise missing("no image is published in a registry; it is built from this repository")


@contextmanager
def chart_repository(bed: SeedBed) -> Iterator[None]:
    """The repository `ngs`, made of the chart and added by the document's two commands."""
    folder = bed.home / "charts"
    bed.type(f"helm package {CHART} --destination {folder} && helm repo index {folder}", check=True)
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        bed.type(f"helm repo add ngs http://127.0.0.1:{server.server_port}", check=True)
        try:
            bed.type("helm repo update", check=True)
            yield
        finally:
            bed.type("helm repo remove ngs")
            server.shutdown()


@contextmanager
def installed(bed: SeedBed, *flags: str) -> Iterator[None]:
    """The document's `helm install`, on this cluster; what the bed itself runs is left out of it.

    Its pods have no image here, so hooks, which are pods, are left out when it is uninstalled.
    """
    own = ("nameOverride=xxx", "metricsApi.enabled=false")
    own += ("admission.mutation=off", "admission.validation=off")
    words = " ".join(f"--set {each}" for each in (*own, *flags))
    with chart_repository(bed):
        where = "--version 0.1.0 --namespace kube-system"
        bed.type(f"helm install xxx ngs/slicewise {where} {words}", check=True)
        try:
            yield
        finally:
            bed.type("helm uninstall xxx --namespace kube-system --no-hooks", check=True)


def _read(bed: SeedBed, path: str) -> Object:
    with bed.plane.api() as api:
        return api.get(path)


def _count_wanted(bed: SeedBed) -> int:
    found = _read(bed, f"{APPS}/daemonsets/xxx-agent").get("status", {})
    return int(found.get("desiredNumberScheduled", 0))


def _selects(bed: SeedBed, flag: str, label: str) -> None:
    """The DaemonSet wants a pod on the node that has the label, and on no other."""
    name = bed.node.node.name
    with installed(bed, flag):
        wait_until(
            lambda: "status" in _read(bed, f"{APPS}/daemonsets/xxx-agent"), 30, lambda: "no status"
        )
        assert _count_wanted(bed) == 0
        bed.type(f"kubectl label node {name} {label}", check=True)
        try:
            wait_until(lambda: _count_wanted(bed) == 1, 30, lambda: "the node is not selected")
        finally:
            bed.type(f"kubectl label node {name} {label.partition('=')[0]}-", check=True)


@works
def chart_has_their_values(bed: SeedBed) -> None:
    """The value that their command sets decides where the DaemonSet's pods go."""
    _selects(bed, "nodeSelectorDaemonSet.nodeinfo=gpu", "nodeinfo=gpu")


@works
def chart_selects_nodes(bed: SeedBed) -> None:
    _selects(bed, "agent.nodeSelector.pool=gpu,agent.nodeSelector.slicewise\\\\.io/agent=null",
             "pool=gpu")  # fmt: skip


@works
def gpu_scheduler_manifest(bed: SeedBed) -> None:
    """A second scheduler of that name, with the extender beside it."""
    with installed(bed, "scheduler.name=gpu-scheduler"):
        config = _read(bed, "/api/v1/namespaces/kube-system/configmaps/xxx-scheduler")
        assert "schedulerName: gpu-scheduler" in config["data"]["config.yaml"]
        pods = _read(bed, f"{APPS}/deployments/xxx-scheduler")["spec"]["template"]["spec"]
        assert [each["name"] for each in pods["containers"]] == ["kube-scheduler", "extender"]


@works
def helm_list(bed: SeedBed) -> None:
    with installed(bed):
        printed = bed.type("helm  list --namespace kube-system", check=True).stdout
    assert "deployed" in printed
    assert "slicewise-0.1.0" in printed


@works
def helm_repository(bed: SeedBed) -> None:
    """The two commands, with a repository that anybody can make of the chart."""
    with chart_repository(bed):
        assert "ngs/slicewise" in bed.type("helm search repo ngs/", check=True).stdout
    raise partly("a repository of one's own works; none is published at that address")


def _run_agent(bed: SeedBed, program: str, flags: str, *resources: str) -> None:
    """The program of a users' DaemonSet, with its flags, serves the node until it is stopped."""
    bed.node.stop_agent()
    try:
        bed.node.launch_agent(*bed.agent_flags, *flags.split(), program=(program,))
        wait_until(bed.node.agent_ready, 60, bed.node.agent_tail)
        bed.node.wait_allocatable(*resources)
    finally:
        bed.node.stop_agent()
        bed.node.start_agent(*bed.agent_flags)


@works
def manager_manifest(bed: SeedBed) -> None:
    flags = "--share-mode=true --logtostderr=false --v=5 --query-port=5678"
    _run_agent(bed, "gpu-manager", flags, "nvidia.com/vcuda-core", "nvidia.com/vcuda-memory")


@works
def elastic_agent_manifest(bed: SeedBed) -> None:
    flags = "--dbFile=/host/var/lib/egpu/meta.db -gpuPluginName=gpushare"
    _run_agent(bed, "elastic-gpu-agent", flags, "elasticgpu.io/gpu-core")


@works
def gpushare_plugin_manifests(bed: SeedBed) -> None:
    flags = "-logtostderr --v=5 --memory-unit=GiB"
    _run_agent(bed, "gpushare-device-plugin-v2", flags, "aliyun.com/gpu-mem")


@works
def gpushare_extender_manifest(bed: SeedBed) -> None:
    """PORT and LOG_LEVEL of the users' Deployment are understood, and its route answers."""
    run_extender(bed, "gpushare-sche-extender", route="/gpushare-scheduler/filter",
                 environment={**ENVIRONMENT, "LOG_LEVEL": "debug"})  # fmt: skip


@works
def elastic_scheduler_manifest(bed: SeedBed) -> None:
    run_extender(bed, "elastic-gpu-scheduler", "-priority", "binpack", "-mode", "gpushare",
                 route="/scheduler/filter", environment=ENVIRONMENT)  # fmt: skip
