"""The demo's page: the real one, over the demo's cluster, with use that is made up and says so.

What programs of the demo use is measured, on a simulated GPU.
"""

import asyncio
import contextlib
import json
import math
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from slicewise.dashboard.run import DashboardSettings, run_dashboard
from slicewise.dashboard.server import PageSettings
from slicewise.dashboard.table_updater import UpdateIntervals
from slicewise.dashboard.usage import MeasuredGpu, MeasuredNode, MeasuredPod
from slicewise.httpd import ServerSettings
from slicewise.kube.credentials import Access
from slicewise.model import NodeState
from slicewise.state.cluster_state import ClusterState
from slicewise_playground.demo.service_thread import Started, serving

PORT: Final = 8484
_MINUTE: Final = 60.0
_SECONDS: Final = 30.0
_PAUSE: Final = 0.1


class SimulatedUses:
    """Use that goes up and down with time, each pod's by itself, and never over what it holds."""

    label = "simulated"

    def __init__(
        self,
        state: ClusterState,
        clock: Callable[[], float] = time.time,
        measured: Callable[[], Sequence[MeasuredPod]] = tuple,
    ) -> None:
        """Pods that are measured keep what they were measured to use."""
        self._state = state
        self._clock = clock
        self._measured = measured

    async def read(self) -> dict[str, MeasuredNode]:
        """Every node's use at this moment."""
        now, measured = self._clock(), self._measured()
        return {
            state.node.name: simulate_use(state, now, measured)
            for state in self._state.snapshot()
            if state.node.gpus
        }


def simulate_use(
    state: NodeState, now: float, measured: Sequence[MeasuredPod] = ()
) -> MeasuredNode:
    """What pods would use of their GPUs; of pods whose GPUs are not known nothing is."""
    uuids = {gpu.index: gpu.uuid for gpu in state.node.gpus}
    known = {(each.pod, each.uuid): each for each in measured}
    pods = []
    for holding in state.holdings:
        if not holding.certain:
            continue
        phase = zlib.crc32(holding.uid.encode()) % 1000 / 1000
        busy = 0.55 + 0.4 * math.sin(2 * math.pi * (now / _MINUTE + phase))
        pods += [
            known.get((holding.pod, uuids[each.gpu]))
            or MeasuredPod(
                holding.pod,
                uuids[each.gpu],
                round(busy * each.cores),
                round((0.5 + 0.4 * phase) * each.memory),
            )
            for each in holding.charges
            if each.gpu in uuids
        ]
    return MeasuredNode(tuple(_sum(uuid, pods) for uuid in uuids.values()), tuple(pods))


def _sum(uuid: str, pods: Iterable[MeasuredPod]) -> MeasuredGpu:
    mine = [each for each in pods if each.uuid == uuid]
    cores = sum(each.cores or 0 for each in mine)
    return MeasuredGpu(uuid, cores, sum(each.memory or 0 for each in mine))


@contextlib.contextmanager
def serve_page(
    master: str, *, port: int = 0, measured: Callable[[], Sequence[MeasuredPod]] = tuple
) -> Iterator[str]:
    """The page's address; another port if this one is taken."""

    def measure(state: ClusterState) -> SimulatedUses:
        return SimulatedUses(state, measured=measured)

    async def serve(stop: asyncio.Event, started: Started) -> None:
        for chosen in (port, 0):
            listen = ServerSettings(port=chosen, max_body_bytes=1)
            page_settings = PageSettings(listen=listen, intervals=UpdateIntervals(usage=1.0))
            settings = DashboardSettings(access=Access(master), page=page_settings)
            try:
                await run_dashboard(settings, stop, started=started, measure=measure)
                break
            except OSError:
                if not chosen:
                    raise

    with serving("page", serve) as url:
        yield url


def check_page(url: str, nodes: int, pods: Iterable[str] = ()) -> list[str]:
    """What is wrong with the page; nothing when its feed tells of all nodes and these pods' use."""
    try:
        wait_ready(url)
        with urllib.request.urlopen(url, timeout=_SECONDS) as response:
            if b"<title>Slicewise</title>" not in response.read():
                return [f"the page at {url} is not ours"]
        with urllib.request.urlopen(f"{url}/api/feed", timeout=_SECONDS) as feed:
            line = next(line for line in feed if line.startswith(b"data: "))
    except (OSError, StopIteration) as error:
        return [f"the page at {url} cannot be read: {error!r}"]
    tables = json.loads(line.removeprefix(b"data: "))
    found = len(tables["nodes"]["rows"])
    wrong = [] if found == nodes else [f"the page shows {found} nodes of {nodes}"]
    uses = tables.get("usage", {"rows": ()})["rows"]
    used = {pod for _, _, pods in uses for pod, _, cores, _ in pods if cores}
    return wrong + [f"the page shows no use of {pod}" for pod in pods if pod not in used]


def wait_ready(url: str) -> None:
    """Return once a service says that it is ready; raises when it does not in time."""
    end = time.monotonic() + _SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{url}/readyz", timeout=_SECONDS).close()
        except urllib.error.HTTPError:
            if time.monotonic() > end:
                raise
            time.sleep(_PAUSE)
        else:
            return
