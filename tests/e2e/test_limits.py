"""A share on a real node that is a limit: granted, met, shared, kept over restarts, and watched.

Programs inside use the stand-in for CUDA under the real limiter library; the static busybox of the
image is the program that avoids it.
"""

import json
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from e2e.agent_node import AgentNode
from e2e.claim_node import GROUP, device_class, share, template
from e2e.gpu_cluster import pod
from slicewise_testbed.cuda import (
    MIB,
    OUT,
    OUT_OF_MEMORY,
    SUCCESS,
    build,
    compile_program,
    limiter,
)
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster
SHARE = {"slicewise.io/cores": 50, "slicewise.io/memory": 1024}
SPACE = "limits"
HELD = 500
RECORD = "slicewise.io/allocation"
DRIVER = {"slicewise.io/isolation": "driver"}
SIZES = {"a": 1024 * MIB, "b": 2048 * MIB}


def make_pod(node: AgentNode, name: str, facts: str = "", **annotations: str) -> dict[str, Any]:
    """A pod of one share, whose container has the host's libraries and the stand-in for CUDA."""
    machine = node.node.folder / "cuda"
    machine.mkdir(exist_ok=True)
    lines = [f"gpu {gpu.uuid} {gpu.memory}" for gpu in node.gpus]
    (machine / "cuda").write_text("\n".join([facts, *lines, "end", ""]))
    made = pod(name, SHARE)
    made["metadata"]["annotations"] = annotations
    (container,) = made["spec"]["containers"]
    container["image"], container["command"] = "busybox:local", ["sleep", "1000000"]
    folders = {"/lib": "/lib", "/lib64": "/lib64", "/usr/lib": "/usr/lib"}
    folders |= {str(OUT): "/native", str(machine): "/machine"}
    names = {path: f"v{at}" for at, path in enumerate(folders)}
    made["spec"]["volumes"] = [
        {"name": names[path], "hostPath": {"path": path}} for path in folders
    ]
    container["volumeMounts"] = [
        {"name": names[path], "mountPath": inside, "readOnly": inside != "/machine"}
        for path, inside in folders.items()
    ]
    return made


def run_program(
    node: AgentNode, name: str, *commands: str, cgroup: str = "", container: str = "main"
) -> list[list[int]]:
    """What a CUDA program in the container answers to each command, in a shell of its own."""
    program = f"/native/programs/{compile_program('client').name}"
    words = "\\n".join(["init", "device 0", *commands])
    known = f"SLICEWISE_CUDA_CGROUP={cgroup}" if cgroup else ""
    script = (
        f"export LD_LIBRARY_PATH=/native/cuda SLICEWISE_CUDA_FILE=/machine/cuda {known}; "
        f"printf '{words}\\n' | {program} dlsym"
    )
    told = node.plane.kubectl("exec", "-n", SPACE, name, "-c", container, "--", "sh", "-c", script)
    return [[int(each) for each in line.split()] for line in told.splitlines()]


def hold_memory(node: AgentNode, name: str) -> None:
    """A program in the container holds a part of the share until the container ends."""
    program = f"/native/programs/{compile_program('client').name}"
    script = (
        "export LD_LIBRARY_PATH=/native/cuda SLICEWISE_CUDA_FILE=/machine/cuda; "
        f"((printf 'init\\ndevice 0\\nalloc {HELD * MIB}\\n'; sleep 1000) "
        f"| {program} dlsym > /tmp/held) > /dev/null 2>&1 < /dev/null &"
    )
    node.plane.kubectl("exec", "-n", SPACE, name, "--", "sh", "-c", script)
    read = ("exec", "-n", SPACE, name, "--", "cat", "/tmp/held")
    wait_until(lambda: node.plane.kubectl(*read).count("\n") == 3, 30, lambda: "nothing held")


def start_limited(node: AgentNode, *more: str) -> None:
    build("cuda")
    folder = node.node.folder
    flags = (
        f"--limiter-library={limiter()}",
        f"--limits={folder / 'limits'}",
        f"--state={folder / 'state'}",
        "--sample-seconds=5",
        *more,
    )
    node.start_agent(*flags)


def restart_container(node: AgentNode, pod: dict[str, Any]) -> dict[str, Any]:
    """The pod, after its container was killed and runs again."""
    node.kill_container(pod, "main")

    def look() -> dict[str, Any]:
        named = f"metadata.name={pod['metadata']['name']}"
        (seen,) = node.cluster.pods(SPACE, fieldSelector=named)
        return seen

    def again() -> bool:
        (status,) = look()["status"]["containerStatuses"]
        return status["restartCount"] == 1 and "running" in status["state"]

    wait_until(again, 60, node.agent_tail)
    return look()


def find_inodes(node: AgentNode, uid: str) -> list[str]:
    """Inode and size of the container's files, which lie on a tmpfs of the node's own."""
    folder = node.node.folder / "limits" / uid / "main"
    paths = [str(folder / name) for name in ("grant", "usage")]
    # What a node's commands printed is kept in one log.
    return node.node.run_inside("stat", "-c", "%i %s", *paths).splitlines()[-2:]


def test_share_is_a_limit_on_a_real_node(agent_node: AgentNode) -> None:
    start_limited(agent_node)
    agent_node.start_extender()
    agent_node.cluster.make_namespace(SPACE)
    hook = {"slicewise.io/isolation": "hook"}
    agent_node.cluster.apply(make_pod(agent_node, "a", **hook), namespace=SPACE)
    agent_node.wait_running(SPACE, 1, 120)
    (found,) = agent_node.cluster.pods(SPACE)
    uid = found["metadata"]["uid"]
    record = json.loads(found["metadata"]["annotations"][RECORD])
    assert record["isolation"] == {"main": ["hook", "hook"]}

    # The program sees its limit as the size of the GPU, and meets it.
    answers = run_program(agent_node, "a", "info", f"alloc {HELD * MIB}", f"alloc {2048 * MIB}")
    assert answers[2][2] == 1024 * MIB
    assert [answer[0] for answer in answers[3:]] == [0, OUT_OF_MEMORY]

    # A second process, in a shell of its own, shares the limit with the first.
    hold_memory(agent_node, "a")
    assert run_program(agent_node, "a", f"alloc {HELD * MIB}")[2][0] == OUT_OF_MEMORY
    before = find_inodes(agent_node, uid)

    # The agent dies and comes back; the container keeps its files, and its limit.
    agent_node.stop_agent(signal.SIGKILL)
    assert run_program(agent_node, "a", f"alloc {HELD * MIB}")[2][0] == OUT_OF_MEMORY
    start_limited(agent_node)
    assert find_inodes(agent_node, uid) == before
    assert run_program(agent_node, "a", f"alloc {HELD * MIB}")[2][0] == OUT_OF_MEMORY
    found = restart_container(agent_node, found)
    assert find_inodes(agent_node, uid) == before
    answers = run_program(agent_node, "a", f"alloc {700 * MIB}", f"alloc {HELD * MIB}")
    assert [answer[0] for answer in answers[2:]] == [SUCCESS, OUT_OF_MEMORY]
    refused = r'slicewise_container_gpu_memory_refused_total\{.*pod="a".*\} ([0-9.]+)'
    wait_until(
        lambda: bool(re.search(refused, agent_node.ask("/metrics"))), 30, agent_node.agent_tail
    )

    # A static program on the GPU is named within 15 seconds.
    agent_node.occupy([found], 100)
    agent_node.wait_event(SPACE, "a", "without the library", seconds=15)
    kinds = [each["kind"] for each in json.loads(agent_node.ask("/audit"))["findings"]]
    assert "Unlimited" in kinds

    # More than the node offers is refused with the reason.
    agent_node.cluster.apply(make_pod(agent_node, "b", **DRIVER), namespace=SPACE)
    agent_node.cluster.wait_message(SPACE, "b", "Insufficient GPU isolation")


def test_limits_are_opted_out_of_only_where_the_namespace_allows_it(agent_node: AgentNode) -> None:
    start_limited(agent_node)
    agent_node.start_extender()
    agent_node.cluster.make_namespace(SPACE)
    none = {"slicewise.io/isolation": "none"}
    agent_node.cluster.apply(make_pod(agent_node, "a", **none), namespace=SPACE)
    agent_node.cluster.wait_message(SPACE, "a", "does not allow GPU shares without limits")
    agent_node.plane.kubectl("label", "namespace", SPACE, "slicewise.io/allow-unlimited=true")
    agent_node.plane.kubectl("delete", "pod", "-n", SPACE, "a", "--now")
    agent_node.cluster.apply(make_pod(agent_node, "b", **none), namespace=SPACE)
    agent_node.wait_running(SPACE, 1, 120)

    (found,) = agent_node.cluster.pods(SPACE)
    assert "isolation" not in json.loads(found["metadata"]["annotations"][RECORD])
    assert run_program(agent_node, "b", f"alloc {2048 * MIB}")[2][0] == SUCCESS


def read_driver_limits(path: Path, cgroups: Path) -> dict[str, int]:
    """The hard limits that the driver was told, all GPUs together, by cgroup."""
    found: Counter[str] = Counter()
    for line in path.read_text().splitlines() if path.exists() else ():
        _, _, hard, cgroup = line.split(maxsplit=3)
        found[cgroup.removeprefix(str(cgroups))] += int(hard)
    return dict(found)


def test_driver_limits_cgroups_of_pods_and_containers(agent_node: AgentNode) -> None:
    unified = Path("/sys/fs/cgroup/unified")
    cgroups = unified if unified.is_dir() else unified.parent
    limits = agent_node.node.folder / "cuda" / "limits"
    limits.parent.mkdir(exist_ok=True)
    limits.unlink(missing_ok=True)
    agent_node.driver_facts = (f"memory_limits {limits}",)
    agent_node.describe()
    tested = ("--driver-tier=tested", f"--cgroups={cgroups}")
    start_limited(agent_node, *tested)
    agent_node.start_extender()
    agent_node.cluster.make_namespace(SPACE)
    facts = f"limits /machine/limits {cgroups}"
    one, two = (make_pod(agent_node, name, facts=facts, **DRIVER) for name in ("a", "b"))
    (main,) = two["spec"]["containers"]
    two["spec"]["containers"] = [main, {**main, "name": "side"}]
    for each in (one, two):
        agent_node.cluster.apply(each, namespace=SPACE)
    agent_node.wait_running(SPACE, 2, 120)
    pods = {each["metadata"]["name"]: each for each in agent_node.cluster.pods(SPACE)}
    record = json.loads(pods["a"]["metadata"]["annotations"][RECORD])
    assert record["isolation"] == {"main": ["driver", "hook"]}

    # The pods' own cgroups are limited, and those of containers where there are several.
    parent = "/kubepods/besteffort/pod"
    (single,), containers = (list_ids(pods[name]) for name in ("a", "b"))
    expected = {f"{parent}{pods[name]['metadata']['uid']}": size for name, size in SIZES.items()}
    double = f"{parent}{pods['b']['metadata']['uid']}"
    expected |= {f"{double}/{identity}": 1024 * MIB for identity in containers}

    def limited() -> bool:
        return read_driver_limits(limits, cgroups) == expected

    def complain() -> str:
        return f"{read_driver_limits(limits, cgroups)}: {agent_node.agent_tail()}"

    wait_until(limited, 30, complain)

    # The library of the container refuses no memory; the driver does, also while no agent runs.
    inside = f"{parent}{pods['a']['metadata']['uid']}/{single}"
    fits, large = f"alloc {HELD * MIB}", f"alloc {1500 * MIB}"
    answers = run_program(agent_node, "a", fits, large, cgroup=inside)
    assert [answer[0] for answer in answers[2:]] == [SUCCESS, OUT_OF_MEMORY]
    agent_node.stop_agent(signal.SIGKILL)
    assert run_program(agent_node, "a", large, cgroup=inside)[2][0] == OUT_OF_MEMORY
    limits.unlink()
    start_limited(agent_node, *tested)
    wait_until(limited, 30, complain)


def list_ids(pod: dict[str, Any]) -> list[str]:
    """The ids of its containers, as the runtime knows them."""
    return [each["containerID"].rpartition("/")[2] for each in pod["status"]["containerStatuses"]]


def test_share_is_a_limit_on_a_runtime_without_cdi(plain_node: AgentNode) -> None:
    start_limited(plain_node)
    plain_node.start_extender()
    plain_node.cluster.make_namespace(SPACE)
    plain_node.cluster.apply(make_pod(plain_node, "a"), namespace=SPACE)
    plain_node.wait_running(SPACE, 1, 120)
    answers = run_program(plain_node, "a", "info", f"alloc {HELD * MIB}", f"alloc {2048 * MIB}")

    assert plain_node.identity() == "match"
    assert answers[2][2] == 1024 * MIB
    assert [answer[0] for answer in answers[3:]] == [0, OUT_OF_MEMORY]


@pytest.mark.since(36)
def test_share_by_claim_is_a_limit_as_well(agent_node: AgentNode) -> None:
    start_limited(agent_node, "--dra=all")
    made = make_pod(agent_node, "claimed")
    (container,) = made["spec"]["containers"]
    container["resources"] = {"claims": [{"name": "gpu"}]}
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "half"}]
    half = template("half", share(50, "1Gi"))
    agent_node.cluster.apply(device_class(), half, made, namespace=SPACE)
    agent_node.wait_running(SPACE, 1, 120)

    words = ("info", f"alloc {HELD * MIB}", f"alloc {2048 * MIB}")
    answers = run_program(agent_node, "claimed", *words)
    assert answers[2][2] == 1024 * MIB
    assert [answer[0] for answer in answers[3:]] == [SUCCESS, OUT_OF_MEMORY]

    # The agent dies and comes back; the container keeps its limit.
    hold_memory(agent_node, "claimed")
    agent_node.stop_agent(signal.SIGKILL)
    start_limited(agent_node, "--dra=all")
    again = run_program(agent_node, "claimed", f"alloc {2 * HELD * MIB}")
    assert again[2][0] == OUT_OF_MEMORY
    with agent_node.plane.api() as api:
        api.delete(f"{GROUP}/deviceclasses/gpu.slicewise.io")
        api.delete(f"/api/v1/namespaces/{SPACE}/pods/claimed", gracePeriodSeconds=1)
    agent_node.wait_log("claim unprepared")
