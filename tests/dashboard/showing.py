"""A page over the embedded API, on a thread of its own, and what tests do to its cluster."""

import asyncio
import http.client
import json
import threading
from dataclasses import replace
from time import monotonic, sleep

import builders
from conformance.bodies import pod
from slicewise.dashboard.run import DashboardSettings, run_dashboard
from slicewise.dashboard.server import PageSettings
from slicewise.dashboard.table_updater import UpdateIntervals
from slicewise.dialects import ALLOCATION, GPUS, write_gpus
from slicewise.kube.credentials import Access
from slicewise_playground.cluster import Playground

QUICK = UpdateIntervals(refresh=0.02, troubles=0.05, usage=0.05)


class Showing:
    """A cluster and the page that shows it; use it with `with`."""

    def __init__(self, *nodes, usage=None, page_settings=None, **facts):
        self.playground = Playground()
        self.nodes = nodes or (builders.node("n0"), builders.node("n1"))
        self._measure = None if usage is None else lambda _: usage
        self._page_settings = page_settings or PageSettings(intervals=QUICK)
        self._facts = facts
        self._started = threading.Event()

    def __enter__(self):
        self.playground.start()
        for node in self.nodes:
            self.add_node(node)
        self.start_page()
        return self

    def __exit__(self, *_):
        self.stop_page()
        self.playground.stop()

    def start_page(self, port=0):
        self._started.clear()
        self._page_settings = replace(
            self._page_settings, listen=replace(self._page_settings.listen, port=port)
        )
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._started.wait(30)
        end = monotonic() + 60
        while self.ask("/readyz")[0] != 200:
            assert monotonic() < end, "the page never knew its cluster"
            sleep(0.01)

    def stop_page(self):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _run(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        settings = DashboardSettings(
            access=Access(self.playground.url), page=self._page_settings, **self._facts
        )
        await run_dashboard(settings, self._stop, started=self._hear, measure=self._measure)

    def _hear(self, url):
        self.url = url
        self._started.set()

    def add_node(self, node):
        meta = {"name": node.name, "annotations": {GPUS: write_gpus(node)}}
        self.playground.create("nodes", {"metadata": meta})

    def add_pod(self, name, cores=30, memory=4096, **fields):
        limits = {"slicewise.io/cores": str(cores), "slicewise.io/memory": str(memory)}
        self.playground.create("pods", pod(name, limits=limits, **fields))

    def place(self, name, node, gpu=0, cores=30, memory=4096, namespace="default", **terms):
        """A pod that holds this much of one GPU, on the record's further terms."""
        meta = {"namespace": namespace}
        self.add_pod(name, cores, memory, metadata=meta)
        given = {"main": [[gpu, f"GPU-{node}-{gpu}", cores, memory]]}
        record = json.dumps({"containers": given, "node": node, **terms})
        self.playground.bind(name, node, namespace, annotations={ALLOCATION: record})

    def fail(self, node, status="Unknown"):
        """The node's kubelet is heard no more."""
        condition = {"type": "Ready", "status": status}
        self.playground.patch("nodes", node, {"status": {"conditions": [condition]}}, status=True)

    def ask(self, path, method="GET", headers=None):
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=30)
        try:
            connection.request(method, path, headers=headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()
