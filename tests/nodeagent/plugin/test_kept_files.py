"""Files that the agent and the kubelet keep, garbled or changed by others meanwhile."""

import json

import pytest

from slicewise.nodeagent.plugin.containers import CHECKPOINT, find_entries
from slicewise.nodeagent.plugin.match_store import AdmissionMatch, MatchStore

GARBLED = [b"{", b'[{"uid": "\xff"}]', b'[{"x":' + b"[" * 100_000]


@pytest.mark.parametrize("content", GARBLED)
def test_match_that_cannot_be_read_costs_no_other(tmp_path, content):
    MatchStore(tmp_path).put("n1", AdmissionMatch("u1", "main", "r", ()))
    (tmp_path / "n2.json").write_bytes(content)

    assert MatchStore(tmp_path).owners() == {"n1": frozenset({"u1"})}


@pytest.mark.parametrize("content", [b"{", b'{"Data": {"x": "\xff"}}', b'{"x":' + b"[" * 100_000])
def test_checkpoint_that_cannot_be_read_names_nobody(tmp_path, content):
    (tmp_path / CHECKPOINT).write_bytes(content)

    assert find_entries(tmp_path, "r", frozenset({"a"})) == []


def test_checkpoint_names_whoever_holds_exactly_these_units(tmp_path):
    entries = [
        {"PodUID": uid, "ContainerName": "c0", "ResourceName": "r", "DeviceIDs": {"0": ids}}
        for uid, ids in (("u1", ["a", "b"]), ("u2", ["b", "a"]), ("u3", ["a"]))
    ]
    (tmp_path / CHECKPOINT).write_text(json.dumps({"Data": {"PodDeviceEntries": entries}}))

    assert find_entries(tmp_path, "r", frozenset({"a", "b"})) == [("u1", "c0"), ("u2", "c0")]


def test_match_may_be_dropped_while_all_of_them_are_looked_at(tmp_path):
    store = MatchStore(tmp_path)
    for name in ("n1", "n2"):
        store.put(name, AdmissionMatch(name, "main", "r", (), started=True))
    found = []
    for each in store.grants():
        # The garbage collector does so on a thread of its own.
        store.drop("n2")
        found.append(each.uid)

    assert found == ["n1", "n2"]
