"""An extender and the embedded API it lives on, for tests that need both."""

import asyncio
import http.client
import json
import threading

import builders
from extender import bodies
from slicewise.cluster import Ledger, NodeSeen, PodSeen
from slicewise.dialects import DEFAULT, GPUS, write_gpus
from slicewise.extender.protocol import decode_pod
from slicewise.extender.run import ExtenderSettings, run_extender
from slicewise.httpd import ServerSettings
from slicewise.kube.watch import WatchSettings
from slicewise.state.settings import StateSettings
from slicewise_playground.cluster import Playground
from slicewise_playground.kubelet.simulated_node import SimulatedNode
from slicewise_playground.kubelet.simulated_nodes import SimulatedNodes


class Cluster:
    """An embedded API with GPU nodes, and an extender on a thread of its own."""

    def __init__(self, nodes=2, gpus=2, prepare=lambda _: None, capacity=None, **facts):
        self.playground = Playground()
        self.prepare = prepare
        self.nodes = [builders.node(f"n{at}", gpus) for at in range(nodes)]
        self.facts = facts
        self.capacity = capacity
        self._started = threading.Event()

    def __enter__(self):
        if self.capacity is not None:
            self.playground.run(SimulatedNodes(self.playground.api, self._rows()).run)
        self.playground.start()
        for node in self.nodes if self.capacity is None else ():
            meta = {"name": node.name, "annotations": {GPUS: write_gpus(node)}}
            self.playground.create("nodes", {"metadata": meta})
        self.prepare(self.playground)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._started.wait(20)
        return self

    def _rows(self):
        """Nodes with a kubelet that plays their pods."""
        return [
            SimulatedNode(node.name, self.capacity, annotations={GPUS: write_gpus(node)})
            for node in self.nodes
        ]

    async def _run(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        settings = ExtenderSettings(
            master=self.playground.url,
            listen=ServerSettings(request_seconds=20),
            state=StateSettings(following=WatchSettings()),
            bind_seconds=1.0,
            **self.facts,
        )
        await run_extender(settings, self._stop, started=self._hear)

    def _hear(self, url):
        self.url = url
        self._started.set()

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self.playground.stop()

    def ask(self, path, body=None):
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=30)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("GET" if body is None else "POST", path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def wait_ready(self):
        wait_until(lambda: self.ask("/leadz")[0] == 200)
        return self

    def add(self, name, limits, priority=None, **meta):
        container = {"name": "c0", "image": "x", "resources": {"limits": limits}}
        spec = {"containers": [container]}
        if priority is not None:
            spec["priorityClassName"] = f"priority-{priority}"
            row = {"metadata": {"name": f"priority-{priority}"}, "value": priority}
            self.playground.create("priorityclasses", row)
        body = {"metadata": {"name": name, "namespace": "default", **meta}, "spec": spec}
        return self.playground.create("pods", body)

    def schedule(self, pod, route="", verbs=("filter", "bind")):
        """Filter, take the first node, bind: what a scheduler does with one pod."""
        names = [node.name for node in self.nodes]
        reply = json.loads(self.ask(f"{route}/{verbs[0]}", bodies.args(pod, names))[1])
        assert reply["Error"] == "", reply
        if not reply["NodeNames"]:
            return None
        meta = pod["metadata"]
        body = bodies.binding(reply["NodeNames"][0], meta["name"], meta["uid"])
        answer = json.loads(self.ask(f"{route}/{verbs[1]}", body)[1])
        assert answer == {"Error": ""}
        return self.playground.get("pods", meta["name"])

    def problems(self):
        """What a ledger that reads everything again has to complain about."""
        ledger = Ledger(DEFAULT)
        for node in self.nodes:
            ledger.apply(NodeSeen(node))
        for pod in self.playground.objects("pods"):
            ledger.apply(PodSeen(decode_pod(json.dumps(pod).encode())))
        return ledger.problems()


def wait_until(reached):
    pause = threading.Event()
    for _ in range(500):
        if reached():
            return
        pause.wait(0.02)
    raise AssertionError("the state was not reached")
