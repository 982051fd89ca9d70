"""5,000 agents on one metrics API: memory, processor, and the time from a change to its watchers.

The server is the real command in a process of its own, over TLS, with every agent known by a
token of its own. The agents are two further processes; this one keeps the embedded API and
watches. Clocks are the machine's, so that moments of different processes can be compared.
"""

import asyncio
import asyncio.sslproto
import base64
import multiprocessing
import os
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import aiohttp
import yaml

from slicewise.cli.render.logs import configure_plain_logs
from slicewise.kube.serving.certificates import make_authority
from slicewise.reports import (
    ContainerReport,
    DeviceReport,
    GpuReport,
    MeasuredUse,
    NodeReport,
    PodReport,
    Reporter,
    ReportTiming,
    trust,
)
from slicewise_playground.cluster import Playground

AGENTS: Final = 5000
_PROCESSES: Final = 2
_GPUS: Final = 8
_PODS: Final = 8
# So often each agent tells of another use of its GPUs, and so many pods change a second.
_USE_SECONDS: Final = 10.0
_CHANGES: Final = 200.0
_WATCHERS: Final = 5
_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 300.0
_NODE_CLAIM: Final = "authentication.kubernetes.io/node-name"
_SYNCED: Final = b'{"Type":"SYNCED"'
_STAMPED: Final = b'"pod_name":"t-'
_PATH: Final = "/apis/metrics.nvidia.com/v1alpha1"


def measure_fanout(agents: int = AGENTS) -> Iterator[tuple[str, float]]:
    """Connect everybody, let things happen for half a minute, and say how long news took."""
    _allow_files()
    with Playground() as playground, tempfile.TemporaryDirectory() as folder:
        _prepare(playground, agents)
        with _Server(playground.url, Path(folder)) as server:
            yield from asyncio.run(_measure(playground, server, agents)).items()


class _Server:
    """The real command, running."""

    def __init__(self, url: str, folder: Path) -> None:
        config = folder / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": url}}
        context = {"name": "c", "context": {"cluster": "c", "user": ""}}
        document = {"clusters": [cluster], "contexts": [context], "current-context": "c"}
        config.write_text(yaml.safe_dump(document))
        self.port = _free_port()
        command = [str(Path(sys.executable).with_name("slicewise")), "metrics-api"]
        flags = [
            f"--kubeconfig={config}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--enable-scheduler=false",
        ]
        self.process = subprocess.Popen([*command, *flags], stdout=subprocess.DEVNULL)

    def __enter__(self) -> "_Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def rss_mb(self) -> float:
        """Resident memory now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024 / 1e6

    def worked(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _prepare(playground: Playground, agents: int) -> None:
    """A cluster that knows every agent's token and lets them report."""
    secret = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
    playground.create("configmaps", {"metadata": secret, "data": {"client-ca-file": _authority()}})
    tokens: dict[str, Mapping[str, Any]] = {"watcher": {"username": "watcher"}}
    for at in range(agents):
        tokens[_token(at)] = {"username": "agent", "extra": {_NODE_CLAIM: [_name(at)]}}
    playground.answers.tokens = tokens


class _Crowd:
    """Every agent there is, in processes of their own."""

    def __init__(self, port: int, authority: str, agents: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.go = context.Event()
        self._ups = [context.Event() for _ in range(_PROCESSES)]
        share = agents // _PROCESSES
        self._workers = [
            context.Process(
                target=_run_agents,
                args=(port, authority, range(at * share, (at + 1) * share), up, self.go),
                daemon=True,
            )
            for at, up in enumerate(self._ups)
        ]
        for worker in self._workers:
            worker.start()

    async def gather(self) -> None:
        """Return once every agent is connected."""
        for up in self._ups:
            if not await asyncio.to_thread(up.wait, _CONNECT_SECONDS):
                raise AssertionError(f"not every agent was connected in {_CONNECT_SECONDS:g} s")

    def disperse(self) -> None:
        """No agent is left."""
        for worker in self._workers:
            worker.kill()
            worker.join()


async def _measure(playground: Playground, server: _Server, agents: int) -> dict[str, float]:
    authority = await _wait_for_authority(playground)
    began = time.monotonic()
    watchers = [_Watcher() for _ in range(_WATCHERS)]
    watching: list[asyncio.Task[None]] = []
    crowd = _Crowd(server.port, authority, agents)
    try:
        await crowd.gather()
        connected = time.monotonic() - began
        watching += [asyncio.create_task(each.run(server.port, authority)) for each in watchers]
        async with asyncio.timeout(_CONNECT_SECONDS):
            while min(each.lines for each in watchers) < agents * _PODS:
                await asyncio.sleep(0.1)
        crowd.go.set()
        worked, start = server.worked(), time.monotonic()
        await asyncio.sleep(_SECONDS)
        percent = 100 * (server.worked() - worked) / (time.monotonic() - start)
        # The long list that follows is no part of what is measured.
        figures = _sum_up(watchers) | {"rss_mb": server.rss_mb(), "cpu_percent": percent}
        healthy = await _count_healthy(server.port, authority)
    finally:
        crowd.disperse()
        for task in watching:
            task.cancel()
        ends = await asyncio.gather(*watching, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):
            raise end
    if healthy != agents:
        raise AssertionError(f"{healthy} of {agents} nodes were healthy while all were beating")
    return figures | {"connect_s": connected}


def _sum_up(watchers: list["_Watcher"]) -> dict[str, float]:
    """How long changes took; raises when too few of them were seen."""
    delays = sorted(delay for each in watchers for delay in each.delays)
    expected = _CHANGES * _SECONDS * _WATCHERS
    if len(delays) < 0.8 * expected:
        raise AssertionError(f"{len(delays)} changes were seen, expected about {expected:g}")
    return {
        "p99_s": delays[int(0.99 * len(delays))],
        "p50_s": delays[len(delays) // 2],
        "max_s": delays[-1],
        "changes_seen": len(delays),
    }


class _Watcher:
    """Notes how long every change took to come here."""

    def __init__(self) -> None:
        self.lines = 0
        self.delays: list[float] = []

    async def run(self, port: int, authority: str) -> None:
        """Watch until cancelled; raises when cut off."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                f"https://localhost:{port}{_PATH}/podresources?watch=true",
                headers={"Authorization": "Bearer watcher"},
                ssl=trust(authority),
                timeout=aiohttp.ClientTimeout(total=None),
                read_bufsize=1 << 20,
            ) as answer,
        ):
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                self._take(lines)
        raise AssertionError("a watcher was cut off")

    def _take(self, lines: list[bytes]) -> None:
        now = time.monotonic()
        self.lines += len(lines)
        for line in lines:
            if line.startswith(_SYNCED):
                _, found, tail = line.partition(_STAMPED)
                if found:
                    self.delays.append(now - int(tail[: tail.index(b'"')]) / 1e9)


async def _count_healthy(port: int, authority: str) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.get(
            f"https://localhost:{port}{_PATH}/gpuinfos",
            headers={"Authorization": "Bearer watcher"},
            ssl=trust(authority),
        ) as answer,
    ):
        items = (await answer.json())["items"]
        return sum(item["status"]["node_health"] == "True" for item in items)


async def _wait_for_authority(playground: Playground) -> str:
    for _ in range(600):
        for secret in playground.objects("secrets", "kube-system"):
            return base64.b64decode(secret["data"]["ca-cert.pem"]).decode()
        await asyncio.sleep(0.1)
    raise AssertionError("the server made no certificate within a minute")


def _run_agents(port: int, authority: str, numbers: range, up: Any, go: Any) -> None:
    """One process of agents: all connected, then changing now and then."""
    configure_plain_logs()
    _allow_files()
    # As the server does: nobody else holds thousands of connections in one process.
    asyncio.sslproto.SSLProtocol.max_size = 16 << 10
    asyncio.run(_report(port, authority, numbers, up, go))


async def _report(port: int, authority: str, numbers: range, up: Any, go: Any) -> None:
    chance, tls = Random(numbers.start), trust(authority)
    reporters = []
    tasks = []
    for number in numbers:
        reporter = Reporter(
            f"https://localhost:{port}", _Shown(tls, _token(number)), timing=ReportTiming()
        )
        reporter.update(_node(number, 0))
        reporters.append(reporter)
        tasks.append(asyncio.create_task(reporter.run()))
        # Nodes of a cluster do not all start in the same moment.
        await asyncio.sleep(0.004)
    for reporter in reporters:
        await reporter.connected.wait()
    up.set()
    while not go.is_set():
        await asyncio.sleep(0.05)
    rate = _CHANGES / _PROCESSES + len(numbers) / _USE_SECONDS
    share = _CHANGES / _PROCESSES / rate
    due = time.monotonic()
    while True:
        due += chance.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        at = chance.randrange(len(numbers))
        fresh = chance.random() < share
        reporters[at].update(_node(numbers[at], time.monotonic_ns(), fresh=fresh))


class _Shown:
    """An agent's credentials."""

    def __init__(self, tls: ssl.SSLContext, token: str) -> None:
        self._tls, self._token = tls, token

    async def tls(self) -> ssl.SSLContext:
        return self._tls

    async def token(self) -> str:
        return self._token


_NAMES: dict[int, str] = {}


def _node(number: int, moment: int, *, fresh: bool = False) -> NodeReport:
    """A full node whose GPUs' use differs each time, and one of whose pods is new if fresh."""
    if fresh:
        _NAMES[number] = f"t-{moment}"
    use = MeasuredUse(memory_mib=moment % 70000, cores=moment % 100)
    gpus = tuple(
        GpuReport(
            uuid=f"GPU-{number:05}-{at}",
            model="NVIDIA A100-SXM4-80GB",
            index=at,
            memory_mib=81920,
            use=use,
        )
        for at in range(_GPUS)
    )
    names = [f"p-{number}-{at}" for at in range(_PODS - 1)] + [_NAMES.get(number, f"p-{number}")]
    pods = tuple(
        PodReport(
            namespace="ml",
            name=name,
            containers=(
                ContainerReport(name="main", devices=(DeviceReport(gpu=gpus[at].uuid, use=use),)),
            ),
        )
        for at, name in enumerate(names)
    )
    return NodeReport(node=_name(number), gpus=gpus, pods=pods)


def _name(number: int) -> str:
    return f"node-{number:05}"


def _token(number: int) -> str:
    # As long as a service account's.
    return f"{number:05}" + "x" * 900


def _authority() -> str:
    """The authority of users' certificates, of which there are none here."""
    return make_authority(datetime.now(UTC)).certificate.decode()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _allow_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
