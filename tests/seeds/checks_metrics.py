"""The metrics API of nvidia-gpu-scheduler, and the series that dashboards read."""

import json
import urllib.request

from e2e.metrics_server import APISERVICES, PREFIX
from seeds.bed import SeedBed, dump, rest
from seeds.statement import works
from slicewise_testbed.testbed import wait_until


@works
def podresources(bed: SeedBed) -> None:
    """Which container holds which GPU, as kubectl --raw prints it."""
    with bed.space("podresources") as space:
        bed.create(space, dump(rest("told", {"nvidia.com/gpu": 1})))
        bed.wait_phase(space, "Running")
        wait_until(lambda: f"{space}/told" in bed.server.pods(), 30, bed.node.agent_tail)
        printed = json.loads(
            bed.type(f"kubectl get --raw {PREFIX}/podresources", check=True).stdout
        )
        spec = next(each["spec"] for each in printed["items"] if each["spec"]["pod_name"] == "told")
        (container,) = spec["containers_device"]
        (device,) = container["device_info"]
        assert device["device_id"] in {gpu.uuid for gpu in bed.node.gpus}
        assert device["device_node"] == bed.node.node.name


@works
def podresources_watch(bed: SeedBed) -> None:
    """The stream begins with what is there, one object a line, in the original's keys."""
    with bed.space("watching") as space:
        bed.create(space, dump(rest("seen", {"nvidia.com/gpu": 1})))
        bed.wait_phase(space, "Running")
        wait_until(lambda: f"{space}/seen" in bed.server.pods(), 30, bed.node.agent_tail)
        done = bed.type(f"timeout 4 kubectl get --raw '{PREFIX}/podresources?watch=true'")
    events = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
    assert any(
        event["Type"] == "SYNCED" and event["Object"]["spec"]["pod_name"] == "seen"
        for event in events
    ), done.stdout


@works
def gpuinfos(bed: SeedBed) -> None:
    items = json.loads(bed.type(f"kubectl get --raw {PREFIX}/gpuinfos", check=True).stdout)["items"]
    (ours,) = (each for each in items if each["spec"]["device_node"] == bed.node.node.name)
    assert set(ours["spec"]["device_models"]) == {
        "nvidia a10",
        "nvidia a100-sxm4-40gb",
        "tesla t4",
    }


@works
def node_health(bed: SeedBed) -> None:
    assert bed.server.health()[bed.node.node.name] == "True"


@works
def metrics_server_restarts(bed: SeedBed) -> None:
    """The server is killed and knows the node again by itself, and so is the agent."""
    name = bed.node.node.name
    bed.server.stop()
    bed.server.start()
    wait_until(lambda: bed.server.health().get(name) == "True", 30, bed.node.agent_tail)
    bed.node.stop_agent()
    wait_until(lambda: bed.server.health().get(name) == "False", 20, lambda: "still well")
    bed.node.start_agent(*bed.agent_flags)
    wait_until(lambda: bed.server.health().get(name) == "True", 30, bed.node.agent_tail)


@works
def apiservice(bed: SeedBed) -> None:
    with bed.plane.api() as api:
        service = api.get(f"{APISERVICES}/v1alpha1.metrics.nvidia.com")
    conditions = {each["type"]: each["status"] for each in service["status"]["conditions"]}
    assert conditions["Available"] == "True"


@works
def extender_verbs(bed: SeedBed) -> None:
    """Filter, score and preempt answer through the API server, as their users' schedulers ask."""
    body = {"Pod": rest("asked", {"nvidia.com/gpu": 1}), "NodeNames": [bed.node.node.name]}
    with bed.plane.api() as api:
        for verb in ("filter", "prioritize"):
            status, _ = api.raw("POST", f"{PREFIX}/schedule/{verb}", body)[:2]
            assert status == 200, verb
        victims = {"Pod": body["Pod"], "NodeNameToMetaVictims": {}}
        assert api.raw("POST", f"{PREFIX}/schedule/preempt", victims)[0] == 200


@works
def score_counts_free_gpus(bed: SeedBed) -> None:
    """A node scores by its free GPUs of the wanted model."""
    name = bed.node.node.name
    points = {}
    for model in ("Tesla T4", "NVIDIA A10"):
        wish = {"annotations": {"nvidia.com/gpu.model": model}}
        wanting = rest("scored", {"nvidia.com/gpu": 1}, metadata=wish)
        body = json.dumps({"Pod": wanting, "NodeNames": [name]}).encode()
        url = f"{bed.cluster.url()}{PREFIX}/schedule/prioritize"
        asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=10) as answer:
            (scored,) = json.load(answer)
        points[model] = scored["Score"]
    assert points == {"Tesla T4": 2, "NVIDIA A10": 4}


@works
def manager_metrics(bed: SeedBed) -> None:
    """gpu-manager's series under its own path, of a pod that runs."""
    limits = {"nvidia.com/vcuda-core": 20, "nvidia.com/vcuda-memory": 1000}
    with bed.space("series") as space:
        bed.create(space, dump(rest("measured", limits)))
        bed.wait_phase(space, "Running")
        series = "container_request_gpu_memory"
        wait_until(
            lambda: f'{series}{{' in bed.ask_agent("/metric") and "measured" in
            bed.ask_agent("/metric"), 30, bed.node.agent_tail,
        )  # fmt: skip


@works
def exporter_metrics(bed: SeedBed) -> None:
    """elastic's series of pods and containers."""
    with bed.space("exporter") as space:
        bed.create(space, dump(rest("exported", {"elastic-gpu/gpu-percent": 20})))
        bed.wait_phase(space, "Running")

        def told() -> bool:
            text = bed.ask_agent("/metrics")
            return all(f"{name}{{" in text for name in ("pod_core_usage", "container_mem_usage"))

        wait_until(told, 30, bed.node.agent_tail)
