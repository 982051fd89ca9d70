"""Pods whose resource name a claim serves, where the scheduler asks an extender about that name."""

import asyncio

import builders
from fakes.cluster import FakeState, FakeWriter
from slicewise.extender.handlers import Extender
from slicewise.extender.protocol import BindingArgs
from slicewise.model import PodRecord

NAME = "nvidia.com/gpu"
CLAIMED = builders.node("claimed", [builders.gpu(0, claims=True)], agent=True)
PLAIN = builders.node("plain", [builders.gpu(0)], agent=True)


def scene(*served):
    state = FakeState(CLAIMED, PLAIN)
    state.served_names = frozenset(served)
    pod = builders.pod(limits={NAME: 1})
    writer = FakeWriter(pod)
    state.see(pod)
    return Extender(state, writer), pod, writer


def screen(extender, pod):
    names = ["claimed", "plain"]
    query = extender.decisions.queries.build(pod)
    return extender.decisions.screen(query, names)


def bind(extender, pod, node):
    args = BindingArgs(pod.name, pod.namespace, pod.uid, node)
    return asyncio.run(extender.binder.bind(args))


def test_node_of_claims_passes_only_for_a_name_that_a_class_serves():
    for served, fits in (((NAME,), [True, True]), (("other/gpu",), [False, True])):
        extender, pod, _ = scene(*served)
        assert screen(extender, pod).fits == fits


def test_pod_is_bound_there_without_a_record_and_charged_nothing_beside_its_claim():
    extender, pod, writer = scene(NAME)

    result = bind(extender, pod, "claimed")

    assert result.error == ""
    assert writer.pods["default", pod.name].node == "claimed"
    assert writer.pods["default", pod.name].annotations == PodRecord().annotations
    assert extender.state.snapshot().get("claimed").used_cores == (0,)


def test_same_pod_is_recorded_and_charged_on_a_node_of_device_plugins():
    extender, pod, _ = scene(NAME)

    bind(extender, pod, "plain")

    assert extender.state.snapshot().get("plain").used_cores == (100,)
