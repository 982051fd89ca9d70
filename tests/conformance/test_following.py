"""Whoever follows a watch ends with what a list shows, whatever happened in between."""

import random

import pytest

from conformance.bodies import config_map

COLOURS = ("red", "blue", "green")


def act(client, path, chance):
    """One random write; refusals are part of life."""
    name = f"m{chance.randrange(6)}"
    action = chance.choice(("create", "create", "paint", "paint", "note", "delete"))
    if action == "create":
        client.post(path, config_map(name, labels={"colour": chance.choice(COLOURS)}))
    elif action == "paint":
        colour = chance.choice((*COLOURS, None))
        client.patch(f"{path}/{name}", {"metadata": {"labels": {"colour": colour}}})
    elif action == "note":
        client.patch(f"{path}/{name}", {"data": {"n": str(chance.random())}})
    else:
        client.delete(f"{path}/{name}")


def follow(client, path, listed, query):
    """The objects a follower knows after reading on from a list to a marker."""
    known = {item["metadata"]["name"]: item for item in listed.body["items"]}
    with client.watch(path, query={**query, "resourceVersion": listed.version}) as watch:
        client.post(path, config_map("marker", labels={"colour": "red"}))
        while True:
            event = watch.next()
            item = event["object"]
            name = item["metadata"]["name"]
            if name == "marker" and event["type"] == "ADDED":
                return known
            if event["type"] == "DELETED":
                assert name in known
                del known[name]
            else:
                assert (name in known) == (event["type"] == "MODIFIED")
                known[name] = {key: item[key] for key in item if key not in {"kind", "apiVersion"}}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "query", [{}, {"labelSelector": "colour=red"}, {"labelSelector": "colour in (red,blue)"}]
)
def test_follower_ends_with_what_a_list_shows(client, maps, seed, query):
    chance = random.Random(seed)
    for _ in range(10):
        act(client, maps, chance)
    listed = client.get(maps, query=query)
    for _ in range(25):
        act(client, maps, chance)
    truth = client.get(maps, query=query)

    known = follow(client, maps, listed, query)

    assert known == {item["metadata"]["name"]: item for item in truth.body["items"]}
