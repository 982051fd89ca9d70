"""Every list in a request has a most, and is refused with it."""

import json

import pytest

from slicewise.extender import protocol
from slicewise.extender.protocol import ProtocolError, decode_args, decode_preemption
from slicewise.model import PolicyError
from slicewise.placement import read_policy

POD = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}}


def preemption(offered, key="NodeNameToMetaVictims"):
    return json.dumps({"Pod": POD, key: offered}).encode()


def victims(count):
    return {"Pods": [{"UID": f"u{at}"} for at in range(count)]}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(
            {"NodeNames": ["n"] * 50_001}, "50001 nodes: expected at most 50000", id="names"
        ),
        pytest.param({"Nodes": {"items": [{}] * 50_001}}, "50001 nodes", id="nodes"),
        pytest.param(
            {"Pod": {"metadata": {"name": "p", "uid": "u" * 999}}, "NodeNames": []},
            "999 letters: expected at most 128",
            id="uid",
        ),
    ],
)
def test_filter_with_too_much_is_refused(body, words):
    with pytest.raises(ProtocolError, match=words):
        decode_args(json.dumps({"Pod": POD, **body}).encode())


def test_too_many_victims_of_one_node_are_refused_and_the_node_is_named():
    with pytest.raises(ProtocolError, match=r"\['a'\]: 1025 pods: expected at most 1024"):
        decode_preemption(preemption({"a": victims(1025)}))


def test_too_many_victims_in_all_are_refused():
    offered = {f"n{at}": victims(1000) for at in range(66)}

    with pytest.raises(ProtocolError, match="66000 pods: expected at most 65536"):
        decode_preemption(preemption(offered))


def test_too_many_bytes_of_victims_are_refused_before_they_are_read(monkeypatch):
    monkeypatch.setattr(protocol, "MAX_VICTIMS_BYTES", 100)

    with pytest.raises(ProtocolError, match="bytes: expected at most 100"):
        decode_preemption(preemption({"a": victims(50)}))


def test_victims_are_read_alike_however_they_are_spelt():
    whole = {"a": {"Pods": [{"metadata": {"name": "x", "uid": "u0"}}], "NumPDBViolations": 2}}
    short = {"a": {"pods": [{"uid": "u0"}], "numPDBViolations": 2}}

    expected = decode_preemption(preemption({"a": {**victims(1), "NumPDBViolations": 2}}))

    assert decode_preemption(preemption(short)) == expected
    assert decode_preemption(preemption(whole, "NodeNameToVictims")) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(
            "node=" + ",".join(["fgd"] * 150), "150 terms: expected at most 16", id="terms"
        ),
        pytest.param("node=fgd,load,fgd", "'fgd' is named twice", id="twice"),
        pytest.param("node=" + "x" * 2000, "letters: expected at most 1024", id="letters"),
    ],
)
def test_policy_with_too_much_is_refused(text, words):
    with pytest.raises(PolicyError, match=words):
        read_policy(text)
