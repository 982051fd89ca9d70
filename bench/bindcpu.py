"""What one pod costs the extender's processor from its creation to its deletion, by itself.

The extender is a process of its own on the embedded API. It is asked what a scheduler asks for
each pod, and sees each pod four times: created, bound, running, deleted. Its own processor time
is what is measured, all threads counted, in rounds of the same process.
"""

import http.client
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from slicewise.httpd import ServerSettings, Tls
from slicewise.kube.serving.certificates import make_authority, make_server
from slicewise_playground.cluster import Playground
from slicewise_testbed.ports import free_port

NODES: Final = 500
PODS: Final = 400
ROUNDS: Final = 5
BINDERS: Final = 4
SECONDS: Final = 60.0
_PAUSE: Final = 0.001
_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "kube-scheduler"}


def measure_bind_cpu(rounds: int = ROUNDS, pods: int = PODS) -> Iterator[tuple[str, float]]:
    """Milliseconds of processor time for each pod: created and bound, and in all of its life."""
    with (
        TemporaryDirectory() as folder,
        _api(Path(folder)) as (playground, access),
        _extender(access) as (pid, address),
    ):
        # The first round loads what is loaded once.
        names = [f"round-{at}" for at in range(rounds + 1)]
        _, *rows = [_run_round(playground, pid, address, name, pods) for name in names]
    for at, name in enumerate(("cpu_ms", "created_cpu_ms", "bound_cpu_ms", "ended_cpu_ms")):
        yield name, median(row[at] for row in rows)


def _run_round(
    playground: Playground, pid: int, address: str, prefix: str, count: int
) -> tuple[float, float, float, float]:
    """What each pod cost in all, while it was created, while it was bound, and after that."""
    names = [f"{prefix}-{at:04}" for at in range(count)]
    times = [_cpu_seconds(pid)]
    made = [playground.create("pods", _pod(name)) for name in _paced(names)]
    _settle(address, count)
    times.append(_cpu_seconds(pid))
    _bind_all(address, made)
    _settle(address, count)
    times.append(_cpu_seconds(pid))
    running = {"status": {"phase": "Running", "conditions": _CONDITIONS}}
    for name in _paced(names):
        playground.patch("pods", name, running, status=True)
    for name in _paced(names):
        playground.delete("pods", name, grace=0)
    _settle(address, 0)
    times.append(_cpu_seconds(pid))
    each = [1000 * (after - before) / count for before, after in pairwise(times)]
    return sum(each), each[0], each[1], each[2]


def _paced(names: list[str]) -> Iterator[str]:
    """The names at the pace of a real API server, which seldom has two events at once."""
    for name in names:
        time.sleep(_PAUSE)
        yield name


def _bind_all(address: str, pods: list[dict[str, Any]]) -> None:
    """Ask as a scheduler does: places one after another, binds beside them."""
    todo: queue.Queue[tuple[dict[str, Any], str] | None] = queue.Queue()
    failures: list[str] = []
    binders = [
        threading.Thread(target=_bind, args=(address, todo, failures)) for _ in range(BINDERS)
    ]
    for each in binders:
        each.start()
    names = [f"node-{at:03}" for at in range(NODES)]
    connection = http.client.HTTPConnection(address, timeout=30)
    for at, pod in enumerate(pods):
        # Schedulers begin at another node for every pod.
        begin = 7 * at % NODES
        body = {"Pod": pod, "Nodes": None, "NodeNames": names[begin:] + names[:begin]}
        reply = _ask(connection, "/place", body)
        if len(reply["NodeNames"] or ()) != 1:
            failures.append(str(reply))
            break
        todo.put((pod["metadata"], reply["NodeNames"][0]))
    for _ in binders:
        todo.put(None)
    for each in binders:
        each.join()
    connection.close()
    if failures:
        raise AssertionError(failures[0])


def _bind(
    address: str, todo: "queue.Queue[tuple[dict[str, Any], str] | None]", failures: list[str]
) -> None:
    while (job := todo.get()) is not None:
        meta, node = job
        # A scheduler keeps two connections, so that most binds beside others have one of their own.
        connection = http.client.HTTPConnection(address, timeout=30)
        named = {"PodName": meta["name"], "PodNamespace": "default", "PodUID": meta["uid"]}
        reply = _ask(connection, "/bind", {**named, "Node": node})
        connection.close()
        if reply["Error"]:
            failures.append(reply["Error"])


def _ask(connection: http.client.HTTPConnection, path: str, body: Any) -> Any:
    connection.request("POST", path, json.dumps(body), _HEADERS)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise AssertionError(f"{path}: {answer.status} {content[:200]!r}")
    return json.loads(content)


def _settle(address: str, pods: int) -> None:
    """Return once the extender's ledger has so many pods, and none of them is unconfirmed."""
    end = time.monotonic() + SECONDS
    while True:
        connection = http.client.HTTPConnection(address, timeout=30)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        if f"\nslicewise_ledger_pods {float(pods)}\n" in text:
            time.sleep(0.2)
            return
        if time.monotonic() > end:
            raise AssertionError(f"the ledger never had {pods} pods")
        time.sleep(0.1)


@contextmanager
def _api(folder: Path) -> Iterator[tuple[Playground, Path]]:
    """An API server behind TLS with its nodes, and the kubeconfig of one who trusts it."""
    now = datetime.now(UTC)
    authority = make_authority(now)
    shown = make_server(authority, "localhost", now)
    trusted, pair = folder / "ca.pem", folder / "server.pem"
    trusted.write_bytes(authority.certificate)
    pair.write_bytes(shown.certificate + shown.key)
    settings = ServerSettings(tls=Tls(pair, pair), request_seconds=None)
    with Playground(settings=settings) as playground:
        for at in range(NODES):
            playground.create("nodes", _node(f"node-{at:03}"))
        path = playground.write_kubeconfig(folder / "kubeconfig", trusted)
        path.write_text(path.read_text().replace("127.0.0.1", "localhost"))
        yield playground, path


@contextmanager
def _extender(access: Path) -> Iterator[tuple[int, str]]:
    address = f"127.0.0.1:{free_port()}"
    command = [str(Path(sys.executable).with_name("slicewise")), "extender"]
    flags = [f"--kubeconfig={access}", f"--address={address}"]
    with subprocess.Popen(
        [*command, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait_ready(address)
            yield process.pid, address
        finally:
            process.send_signal(signal.SIGTERM)


def _wait_ready(address: str) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        connection = http.client.HTTPConnection(address, timeout=2)
        try:
            connection.request("GET", "/leadz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.1)
    raise AssertionError("no extender")


def _cpu_seconds(pid: int) -> float:
    """The processor time that all threads of a process have had, to the nanosecond."""
    # How Linux names the clock of another process.
    return time.clock_gettime(~pid << 3 | 2)


def _node(name: str) -> dict[str, Any]:
    gpus = [
        {
            "index": at,
            "minor": at,
            "uuid": f"GPU-{name}-{at}",
            "model": "NVIDIA A10",
            "memory": 24576,
        }
        for at in range(8)
    ]
    amounts = {"cpu": "96", "memory": "1000Gi", "pods": "110"}
    amounts |= {"slicewise.io/cores": "800", "slicewise.io/memory": str(8 * 24576)}
    return {
        "metadata": {
            "name": name,
            "annotations": {"slicewise.io/gpus": json.dumps({"gpus": gpus})},
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


_WHEN: Final = "2026-01-01T00:00:00Z"
_CONDITIONS: Final = [
    {"type": name, "status": "True", "lastProbeTime": None, "lastTransitionTime": _WHEN}
    for name in (
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    )
]


def _pod(name: str) -> dict[str, Any]:
    """A pod with what a real API server adds to one."""
    limits = {"cpu": "100m", "memory": "32Mi"}
    limits |= {"slicewise.io/cores": "30", "slicewise.io/memory": "4096"}
    token = "kube-api-access-x2v5k"
    tolerations = [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for key in ("not-ready", "unreachable")
    ]
    projected = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "busybox:local",
                    "resources": {"limits": limits, "requests": limits},
                    "volumeMounts": [
                        {
                            "name": token,
                            "readOnly": True,
                            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                        }
                    ],
                    "imagePullPolicy": "IfNotPresent",
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                }
            ],
            "volumes": [{"name": token, "projected": {"sources": projected, "defaultMode": 420}}],
            "tolerations": tolerations,
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
        },
    }
