"""Whatever a client sends, it gets a Status: nothing makes the server itself fail."""

import copy
import random

import pytest

from conformance.bodies import binding, config_map, deployment, pod
from conformance.server import JSON_PATCH, MERGE, STRATEGIC

JUNK = (None, 0, -1, 2.5, True, "", "x", "ä/ö", [], [None], [1], {}, {"a": None}, {"x": {"y": []}})
DEFAULT = "/api/v1/namespaces/default"
BODIES = (
    (
        f"{DEFAULT}/pods",
        pod(limits={"cpu": "1"}, tolerations=[{"key": "a"}], nodeSelector={"a": "b"}),
    ),
    (f"{DEFAULT}/configmaps", config_map(data={"a": "b"}, labels={"a": "b"}, finalizers=["a.b/c"])),
    (
        f"{DEFAULT}/secrets",
        {"metadata": {"name": "s"}, "data": {"a": "Yg=="}, "stringData": {"b": "c"}},
    ),
    (f"{DEFAULT}/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}),
    (f"{DEFAULT}/events", {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}),
    ("/apis/apps/v1/namespaces/default/deployments", deployment(replicas=1)),
    (
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 1}},
    ),
    (
        "/api/v1/nodes",
        {
            "metadata": {"name": "n"},
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
            "status": {"capacity": {"cpu": "1"}, "conditions": [{"type": "Ready"}]},
        },
    ),
    (f"{DEFAULT}/pods/kept/binding", binding("kept", "n1", annotations={"a": "b"})),
    (f"{DEFAULT}/pods/kept/eviction", {"metadata": {"name": "kept"}, "deleteOptions": {}}),
    ("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "a"}}),
)


def places(value, path=()):
    """The paths of all values inside a value."""
    yield path
    members = value.items() if isinstance(value, dict) else ()
    for key, member in enumerate(value) if isinstance(value, list) else members:
        yield from places(member, (*path, key))


def spoil(body, chance):
    """The body with one value replaced by junk."""
    body = copy.deepcopy(body)
    *steps, last = chance.choice([path for path in places(body) if path])
    parent = body
    for step in steps:
        parent = parent[step]
    parent[last] = copy.deepcopy(chance.choice(JUNK))
    return body


def is_answered(reply):
    """Whether the server itself answered, rather than the guard around it."""
    return isinstance(reply.body, dict) and "kind" in reply.body


@pytest.fixture
def kept(client, pods):
    client.post(pods, pod("kept", metadata={"annotations": {"a": "b"}}))
    client.post("/api/v1/nodes", {"metadata": {"name": "kept"}})
    return f"{pods}/kept"


@pytest.mark.parametrize("seed", range(8))
def test_spoiled_bodies_are_answered(client, kept, seed):
    chance = random.Random(seed)
    for _ in range(60):
        path, body = chance.choice(BODIES)
        spoiled = spoil(body, chance)

        reply = client.post(path, spoiled)

        assert is_answered(reply), (path, spoiled, reply.body)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC, JSON_PATCH])
def test_spoiled_patches_are_answered(client, kept, seed, content_type):
    chance = random.Random(seed)
    body = {
        "metadata": {"labels": {"a": "b"}, "finalizers": ["a.b/c"], "annotations": {"c": "d"}},
        "spec": {
            "containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}],
            "$setElementOrder/containers": [{"name": "main"}],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    operations = [
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        {"op": "copy", "from": "/metadata/labels", "path": "/metadata/annotations"},
    ]
    for _ in range(40):
        spoiled = spoil(operations if content_type == JSON_PATCH else body, chance)
        for path in (kept, f"{kept}/status", "/api/v1/nodes/kept", "/api/v1/nodes/kept/status"):
            reply = client.patch(path, spoiled, content_type)

            assert is_answered(reply), (path, spoiled, reply.body)


@pytest.mark.parametrize("accept", ["", ";as=Table;v=v1;g=meta.k8s.io"])
def test_odd_objects_can_still_be_listed(client, kept, accept):
    chance = random.Random(1)
    for number in range(200):
        path, body = chance.choice(BODIES[:8])
        spoiled = spoil(body, chance)
        if isinstance(spoiled.get("metadata"), dict):
            spoiled["metadata"]["name"] = f"odd-{number}"
        client.post(path, spoiled)

    replies = [client.get(path, accept=f"application/json{accept}") for path, _ in BODIES[:8]]

    assert {reply.status for reply in replies} == {200}
