"""Filter, explain and bind say the same of every pod and node."""

import asyncio
import json

from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from extender import bodies
from fakes.cluster import FakeState, FakeWriter
from slicewise.extender.handlers import Extender
from slicewise.extender.protocol import decode_pod
from slicewise.extender.routes import build_handler
from slicewise.httpd import HttpRequest

NAMES = ["n0", "n1", "n2", "n3"]
MODELS = {"NVIDIA A100-SXM4-40GB": 40960, "Tesla T4": 15360}


def own(cores, memory, count):
    if cores == 100:
        return {"slicewise.io/gpu": count}
    return {"slicewise.io/gpu": count, "slicewise.io/cores": cores, "slicewise.io/memory": memory}


limits = st.one_of(
    st.builds(
        own,
        st.sampled_from([10, 40, 60, 100]),
        st.sampled_from([64, 4096, 16000, 50000]),
        st.integers(1, 3),
    ),
    st.builds(lambda units: {"aliyun.com/gpu-mem": units}, st.integers(1, 50)),
    st.builds(lambda cores: {"elasticgpu.io/gpu-core": cores}, st.sampled_from([20, 70, 100, 200])),
    st.just({"nvidia.com/gpu": 1}),
)
clusters = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(sorted(MODELS))), min_size=1, max_size=4
)


class Asked:
    """An extender over a random cluster, asked without a network."""

    def __init__(self, cluster):
        nodes = [
            builders.node(f"n{at}", count, model=model, memory=MODELS[model])
            for at, (count, model) in enumerate(cluster)
        ]
        self.state, self.writer = FakeState(*nodes), FakeWriter()
        self.handler = build_handler(Extender(self.state, self.writer))

    async def post(self, path, body):
        answer = await self.handler(HttpRequest("POST", path, {}, {}, body, asyncio.Event().wait))
        return json.loads(answer.body)

    def add(self, at, asked):
        body = bodies.pod(asked, name=f"p{at}", uid=f"u{at}")
        pod = decode_pod(json.dumps(body).encode())
        self.writer.add(pod)
        self.state.see(pod)
        return bodies.args(body, NAMES)


@settings(max_examples=100)
@given(clusters, st.lists(st.tuples(limits, st.integers(0, 3)), min_size=1, max_size=8))
def test_bind_succeeds_exactly_where_filter_and_explain_say_so(cluster, wanted):
    async def play():
        asked = Asked(cluster)
        for at, (amounts, choice) in enumerate(wanted):
            body = asked.add(at, amounts)
            fitting = (await asked.post("/filter", body))["NodeNames"]
            told = (await asked.post("/explain", body))["nodes"]
            node = NAMES[choice]
            bound = await asked.post("/bind", bodies.binding(node, f"p{at}", f"u{at}"))

            assert fitting == [each["node"] for each in told if each["fits"]]
            assert (bound["Error"] == "") == (node in fitting), bound
        assert asked.state.ledger.problems() == ()

    asyncio.run(play())


@settings(max_examples=100)
@given(clusters, st.lists(limits, min_size=1, max_size=6))
def test_every_change_that_explain_offers_really_fits(cluster, wanted):
    async def play():
        asked = Asked(cluster)
        for at, amounts in enumerate(wanted):
            body = asked.add(at, amounts)
            fitting = (await asked.post("/filter", body))["NodeNames"]
            if fitting:
                await asked.post("/bind", bodies.binding(fitting[0], f"p{at}", f"u{at}"))
                continue
            told = await asked.post("/explain", body)
            for node in told["nodes"]:
                for change in node["changes"]:
                    if "MiB of each GPU" in change["text"] and "slicewise.io/memory" in amounts:
                        less = int(change["text"].split()[2])
                        smaller = {**amounts, "slicewise.io/memory": less}
                        pod = bodies.pod(smaller, name="less", uid="less")
                        reply = await asked.post("/filter", bodies.args(pod, [node["node"]]))
                        assert reply["NodeNames"] == [node["node"]]

    asyncio.run(play())
