"""How long a person waits for the page of a large cluster, in a real browser."""

import asyncio
import threading
from collections.abc import Iterator
from statistics import median
from typing import Final

from bench.cluster import half_full
from bench.extender import StillState
from slicewise.dashboard.server import DashboardServer
from slicewise.model import Pod
from slicewise_testbed.browser import Browser, Page

_VISITS: Final = 5
# Two frames after the first GPU is there it has been painted; later all nodes are known.
_WATCH: Final = """
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const painted = async () => { await frame(); await frame(); };
  const look = new MutationObserver(async () => {
    if (window.firstGpus === undefined && document.querySelector(".gpu")) {
      window.firstGpus = null;
      await painted();
      window.firstGpus = performance.now();
    }
    const told = document.querySelector("#count")?.textContent || "";
    if (window.allNodes === undefined && told.startsWith("%s")) {
      window.allNodes = null;
      await painted();
      window.allNodes = performance.now();
    }
  });
  look.observe(document, { childList: true, subtree: true, characterData: true });
"""


class _Served:
    """The page of a half-full cluster on a thread of its own."""

    def __init__(self, nodes: int) -> None:
        self._state = StillState(half_full(nodes))
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.url = ""

    def __enter__(self) -> "_Served":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        service = DashboardServer(self._state, _find)
        await service.start()
        while service.unready is not None:
            await asyncio.sleep(0.01)
        self.url = service.url
        self._ready.set()
        await self._stop.wait()
        await service.stop()


async def _find(namespace: str, name: str) -> Pod | None:  # noqa: ARG001
    return None


def measure_first_paint(nodes: int) -> Iterator[tuple[str, float]]:
    """From asking for the page to its first GPUs, and to all of them being known."""
    first, everything, size = [], [], 0.0
    with _Served(nodes) as served, Browser() as browser:
        for _ in range(_VISITS):
            page = browser.open("about:blank")
            page.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH % f"{nodes:,}")
            page.go(served.url)
            page.wait("window.firstGpus && window.allNodes")
            first.append(float(page.ask("window.firstGpus")) / 1e3)
            everything.append(float(page.ask("window.allNodes")) / 1e3)
            size = _read_size(page)
            page.close()
    yield "seconds", median(first)
    yield "worst_seconds", max(first)
    yield "all_seconds", median(everything)
    yield "heap_mb", size


def _read_size(page: Page) -> float:
    """What the page's objects take, after what nobody needs is gone."""
    page.call("HeapProfiler.collectGarbage")
    return float(page.ask("performance.memory.usedJSHeapSize")) / 1e6
