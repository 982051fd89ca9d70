import asyncio
import json

import builders
from extender import bodies
from kube.lines import client
from slicewise.dialects import GPUS, write_gpus
from slicewise.extender.run import serve_beside
from slicewise.httpd import HttpRequest
from slicewise.kube.background_tasks import BackgroundTasks
from slicewise.state.live import LiveState
from slicewise_playground.cluster import Playground


def test_service_without_keys_refuses_to_bind_and_says_who_does():
    async def ask(playground, pod):
        async with client(playground.url) as line:
            state, background = LiveState(line), BackgroundTasks()
            await state.start()
            try:
                async with serve_beside(line, state, "test", background) as handle:
                    body = bodies.binding("a", "p", pod["metadata"]["uid"])
                    headers = {"content-type": "application/json"}
                    answer = await handle(HttpRequest("POST", "/bind", {}, headers, body, None))
                    return json.loads(answer.body)
            finally:
                await background.stop()
                await state.stop()

    with Playground() as playground:
        annotations = {GPUS: write_gpus(builders.node("a"))}
        playground.create("nodes", {"metadata": {"name": "a", "annotations": annotations}})
        limits = {"slicewise.io/cores": "30"}
        container = {"name": "c0", "image": "x", "resources": {"limits": limits}}
        pod = playground.create(
            "pods", {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
        )
        reply = asyncio.run(ask(playground, pod))

        assert "have the scheduler ask `slicewise extender`" in reply["Error"]
        assert "nodeName" not in playground.get("pods", "p")["spec"]
