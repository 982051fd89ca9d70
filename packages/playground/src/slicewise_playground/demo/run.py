"""The demo: a cluster in one process, every system's examples on it, and the real extender.

The embedded API, its nodes and a small scheduler play the cluster; the extender is the one that
`slicewise extender` runs, reached over HTTP by the routes that each system's users have today.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

from slicewise.dashboard.usage import MeasuredPod
from slicewise.dialects import ELASTIC, GPUS, GPUSCHEDULER, GPUSHARE, SLICEWISE, TKESTACK, Dialect
from slicewise.dialects.scheduler_config import build_config
from slicewise.extender.client.calls import ExtenderTarget, fetch
from slicewise.extender.run import ExtenderSettings, run_extender
from slicewise.model import SlicewiseError
from slicewise.model.backoff import Backoff
from slicewise.state.trust import TRUST_CONFIGMAP
from slicewise.trust import TrustStore, read_trust
from slicewise_playground.cluster import Playground
from slicewise_playground.controlplane.controllers import WorkloadControllers
from slicewise_playground.controlplane.extender_calls import read_extenders
from slicewise_playground.controlplane.scheduler import (
    SchedulerDelays,
    SchedulerProfile,
    SmallScheduler,
)
from slicewise_playground.demo.allocation_check import AllocationCheck, CheckedPod
from slicewise_playground.demo.demo_cluster import UNFIT, ExampleManifest, build_nodes
from slicewise_playground.demo.demo_output import (
    say,
    show_limits,
    show_pending,
    show_pods,
    show_problems,
    show_usage,
)
from slicewise_playground.demo.demo_page import check_page, serve_page, wait_ready
from slicewise_playground.demo.limited_programs import (
    LimitedPrograms,
    LimitsNotShownError,
    ProgramUse,
    find_shares,
    run_programs,
)
from slicewise_playground.demo.service_thread import Started, serving
from slicewise_playground.kubelet.simulated_nodes import SimulatedNodes
from slicewise_playground.objects.errors import ApiError

# Which system's scheduler configuration serves the pods of which dialect.
_SCHEDULERS: Final[dict[str, Dialect]] = {
    "gpu-admission": TKESTACK,
    "gpushare": GPUSHARE,
    "elastic": ELASTIC,
    "gpuscheduler": GPUSCHEDULER,
    "slicewise": SLICEWISE,
}
_PACED_SECONDS: Final = 30.0
_KUBELET: Final = "filtered and scored by model; the kubelet there chooses the GPUs"


@dataclass(slots=True)
class DemoRun:
    """The running cluster and extender, and what was put on them."""

    cluster: Playground
    url: str
    """The extender's address."""
    page: str
    """The page's address."""
    manifests: list[ExampleManifest]
    programs: list[LimitedPrograms]
    """What runs on one of its GPUs."""

    def start_programs(
        self, stack: contextlib.ExitStack, folder: Path, stop: threading.Event
    ) -> tuple[ProgramUse, ...]:
        """Programs in two pods of one GPU, once they have come to their shares; none without C."""
        try:
            shares = find_shares(self.check())
            programs = stack.enter_context(run_programs(shares, folder))
            self.programs.append(programs)
            # The page reads them until they are stopped.
            stack.callback(self.programs.clear)
            return programs.wait(_PACED_SECONDS, stop)
        except LimitsNotShownError as error:
            say(f"Limits inside containers are not shown: {error}")
            return ()

    def apply(self, manifests: Sequence[ExampleManifest]) -> None:
        """Create every object; namespaces and quotas first, as whoever runs a cluster would."""
        self.manifests += manifests
        for each in sorted(manifests, key=lambda each: each.pods > 0):
            try:
                self.cluster.create(each.resource, each.document)
            except ApiError as error:
                raise SlicewiseError(f"{each.resource} {'/'.join(each.key)}: {error}") from error

    def wait(self, seconds: float, stop: threading.Event) -> bool:
        """Whether all pods but the one that cannot fit were placed, and that one was refused."""
        return _wait_for(self.cluster, self._settled, seconds, stop)

    def system_of(self, namespace: str, name: str) -> str:
        """The system whose example made this pod."""
        found = [
            each
            for each in self.manifests
            if each.key == (namespace, name)
            or (each.key[0] == namespace and name.startswith(f"{each.key[1]}-"))
        ]
        return max(found, key=lambda each: len(each.key[1])).system if found else ""

    def check(self) -> AllocationCheck:
        """Pods and nodes as the API has them."""
        namespace, name = TRUST_CONFIGMAP
        trust = TrustStore()
        trust.take(read_trust(self.cluster.get("configmaps", name, namespace)["data"]))
        return AllocationCheck(self.cluster.objects("nodes"), self.cluster.objects("pods"), trust)

    def events(self, reason: str) -> dict[str, str]:
        """What events of a reason say, by the UID of their pod."""
        return {
            event["involvedObject"]["uid"]: event["message"]
            for event in self.cluster.objects("events")
            if event.get("reason") == reason
        }

    def _settled(self) -> bool:
        pods = self.cluster.objects("pods")
        if len(pods) < sum(each.pods for each in self.manifests):
            return False
        told, refused = self.events("GpuAssigned"), self.events("FailedScheduling")
        served = {
            node["metadata"]["name"]
            for node in self.cluster.objects("nodes")
            if GPUS in node["metadata"].get("annotations", {})
        }
        return all(
            _is_unfit(pod) and pod["metadata"]["uid"] in refused
            if not pod["spec"].get("nodeName")
            else pod["metadata"]["uid"] in told
            or (_is_silent(pod) and pod["spec"]["nodeName"] not in served)
            for pod in pods
        )


def _is_unfit(pod: dict[str, Any]) -> bool:
    return bool(pod["metadata"]["name"] == UNFIT["metadata"]["name"])


def _is_silent(pod: dict[str, Any]) -> bool:
    """Whether the pod's system binds it by itself and tells nothing of its GPUs."""
    containers = pod["spec"]["containers"]
    return any("nvidia.com/gpu" in (each["resources"].get("limits") or {}) for each in containers)


def report(run: DemoRun, placed: bool, uses: Sequence[ProgramUse] = ()) -> bool:
    """Show everything; true when every allocation is as expected, and every limit held."""
    check = run.check()
    bound = [check.check_pod(pod) for pod in check.pods if pod.node is not None]
    waiting = [pod for pod in check.pods if pod.node is None]
    systems = {pod.uid: run.system_of(pod.namespace, pod.name) for pod in check.pods}
    order = sorted(bound, key=lambda each: (systems[each.pod.uid], each.pod.name))
    show_pods(order, systems, _explain(run, order))
    events = run.events("FailedScheduling")
    for pod in waiting:
        query = {"pod": f"{pod.namespace}/{pod.name}"}
        answer = fetch(ExtenderTarget(url=run.url), "/explain", query)
        show_pending(answer, events.get(pod.uid, ""))
    show_usage(check.snapshot)
    broken = [
        f"{each.pod.namespace}/{each.pod.name}: {each.broken}" for each in bound if each.broken
    ]
    broken += [f"{each.subject}: {each.trouble}: {each.detail}" for each in check.problems()]
    if uses:
        show_limits(uses)
    broken += [f"{each.share.name}: {each.broken}" for each in uses if each.broken]
    broken += check_page(run.page, len(build_nodes()), [each.share.name for each in uses])
    if not placed:
        broken.append("not every pod was placed in time")
    show_problems(broken)
    if not broken:
        say(f"{len(bound)} pods placed as expected, {len(waiting)} waits with its reasons")
        if uses:
            stopped = sum(each.stopped for each in uses)
            say(f"{len(uses)} programs held to their shares, {stopped} stopped at its memory limit")
    return not broken


def _explain(run: DemoRun, given: Sequence[CheckedPod]) -> dict[str, str]:
    """Why each pod is where it is: the end of what its event says."""
    told = run.events("GpuAssigned")
    whys = {}
    for each in given:
        words = told.get(each.pod.uid, "")
        _, _, why = words.partition(f" on node {each.pod.node}, ")
        whys[each.pod.uid] = why or words or _KUBELET
    return whys


@contextlib.contextmanager
def run_demo(port: int) -> Iterator[DemoRun]:
    """The cluster with its nodes, controllers and scheduler, the extender it asks, and the page."""
    cluster = Playground()
    found: Future[str] = Future()
    programs: list[LimitedPrograms] = []
    cluster.run(SimulatedNodes(cluster.api, build_nodes()).run)
    cluster.run(WorkloadControllers(cluster.api).run)

    async def schedule() -> None:
        profiles = build_profiles(await asyncio.wrap_future(found))
        quick = SchedulerDelays(Backoff(0.2, 5.0))
        await SmallScheduler(cluster.api, lambda: cluster.url, profiles, quick).run()

    cluster.run(schedule)
    with (
        cluster,
        _extending(cluster.url) as url,
        serve_page(cluster.url, port=port, measured=lambda: _measure(programs)) as page,
    ):
        # Pods that wait for the extender would be placed in any order.
        wait_ready(url)
        found.set_result(url)
        yield DemoRun(cluster, url, page, [], programs)


def _measure(programs: Sequence[LimitedPrograms]) -> list[MeasuredPod]:
    """What programs use now, as the page has it."""
    return [
        MeasuredPod(use.share.name, use.share.gpu.uuid, use.cores, use.held_mib)
        for each in programs
        for use in each.read()
    ]


def _extending(master: str) -> AbstractContextManager[str]:
    """The real extender; its address once it listens."""

    async def serve(stop: asyncio.Event, started: Started) -> None:
        settings = ExtenderSettings(master=master)
        settings = replace(settings, listen=replace(settings.listen, port=0))
        await run_extender(settings, stop, started=started)

    return serving("extender", serve)


def build_profiles(url: str) -> list[SchedulerProfile]:
    """A scheduler of every system, each by that system's own configuration."""
    return [
        SchedulerProfile(name, dialect.pods.resources, read_extenders(build_config(name, url)))
        for name, dialect in _SCHEDULERS.items()
    ]


def _wait_for(
    cluster: Playground, reached: Callable[[], bool], seconds: float, stop: threading.Event
) -> bool:
    """Whether a state is reached in time; looks again on every change of pods and events."""
    changed, end = threading.Event(), monotonic() + seconds
    leaves = [cluster.store.subscribe(name, changed.set) for name in ("pods", "events")]
    try:
        while not reached():
            left = end - monotonic()
            if left <= 0 or stop.is_set():
                return False
            changed.wait(min(left, 0.5))
            changed.clear()
    finally:
        for leave in leaves:
            leave()
    return True
