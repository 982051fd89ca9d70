"""Fields that a kind does not have, and what OpenAPI says of those that it has."""

import pytest

from conformance.bodies import config_map, deployment, pod
from conformance.server import MERGE, STRATEGIC

STRICT = {"fieldValidation": "Strict"}


def misspelt(name="a"):
    body = pod(name)
    body["spec"]["containers"][0]["imag"] = "x"
    body["specs"] = {}
    return body


def test_strict_create_names_every_unknown_field_and_stores_nothing(client, pods):
    refused = client.call("POST", pods, misspelt(), query=STRICT)

    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")
    head, _, told = refused.body["message"].partition(": strict decoding error: ")
    assert head == 'Pod in version "v1" cannot be handled as a Pod'
    assert sorted(told.split(", ")) == [
        'unknown field "spec.containers[0].imag"',
        'unknown field "specs"',
    ]
    assert client.get(f"{pods}/a").status == 404


@pytest.mark.parametrize("wish", ["Warn", ""], ids=["asked-for", "default"])
def test_other_clients_are_warned(client, pods, wish):
    query = {"fieldValidation": wish} if wish else {}

    created = client.call("POST", pods, {**pod(), "specs": {}}, query=query)

    warnings = {key.lower(): text for key, text in created.headers.items()}["warning"]
    assert created.status == 201
    assert warnings == r'299 - "unknown field \"specs\""'


def test_ignored_fields_are_not_spoken_of(client, pods):
    created = client.call("POST", pods, misspelt(), query={"fieldValidation": "Ignore"})

    assert created.status == 201
    assert "warning" not in {key.lower() for key in created.headers}


def test_strict_update_is_refused(client, maps):
    client.post(maps, config_map())

    refused = client.call("PUT", f"{maps}/a", {**config_map(), "dat": {}}, query=STRICT)

    assert refused.status == 400
    assert 'strict decoding error: unknown field "dat"' in refused.body["message"]


@pytest.mark.parametrize("kind", [MERGE, STRATEGIC], ids=["merge", "strategic"])
def test_strict_patch_is_refused(client, maps, kind):
    client.post(maps, config_map())
    change = {"dat": {"x": "y"}}

    refused = client.call("PATCH", f"{maps}/a", change, query=STRICT, content_type=kind)

    assert refused.status in (400, 422)
    assert 'unknown field "dat"' in refused.body["message"]


def test_maps_and_quantities_hold_any_key(client, pods, namespace):
    body = pod(limits={"example.com/gpu": 1}, nodeSelector={"a/b": "c"})
    apps = f"/apis/apps/v1/namespaces/{namespace}/deployments"

    assert client.call("POST", pods, body, query=STRICT).status == 201
    assert client.call("POST", apps, deployment(), query=STRICT).status == 201


@pytest.mark.parametrize(
    ("path", "kind"),
    [("api/v1", ("", "v1", "Pod")), ("apis/apps/v1", ("apps", "v1", "Deployment"))],
    ids=["core", "apps"],
)
def test_openapi_has_the_fields_of_a_kind(client, path, kind):
    document = client.get(f"/openapi/v3/{path}").body
    schemas = document["components"]["schemas"].values()
    key = "x-kubernetes-group-version-kind"
    wanted = dict(zip(("group", "version", "kind"), kind, strict=True))
    (found,) = (each for each in schemas if each.get(key) == [wanted])

    assert set(found["properties"]) == {"apiVersion", "kind", "metadata", "spec", "status"}


def test_older_openapi_is_served(client):
    document = client.get("/openapi/v2").body

    assert document["swagger"] == "2.0"
    assert any(name.endswith("core.v1.PodSpec") for name in document["definitions"])
