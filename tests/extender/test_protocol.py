import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender import bodies
from slicewise.extender.protocol import (
    BindingReply,
    CandidateNodes,
    FilterReply,
    HostScore,
    ProtocolError,
    Victims,
    decode_args,
    decode_binding,
    decode_preemption,
    encode,
    encode_filter,
    keep_nodes,
)

GPU = {"slicewise.io/gpu": "1"}


def respell(body, change):
    return json.dumps({change(key): value for key, value in json.loads(body).items()}).encode()


@pytest.mark.parametrize("change", [str, str.lower, str.upper, str.swapcase, str.title])
def test_keys_are_read_in_any_letter_case(change):
    ask = decode_args(respell(bodies.args(bodies.pod(GPU), ["a", "b"]), change))

    assert ask.pod.name == "p0"
    assert ask.candidates == CandidateNodes(["a", "b"])


@pytest.mark.parametrize("change", [str, str.lower, str.upper])
def test_binding_is_read_in_any_letter_case(change):
    args = decode_binding(respell(bodies.binding("a"), change))

    assert (args.pod_name, args.pod_namespace, args.pod_uid, args.node) == (
        "p0",
        "default",
        "u0",
        "a",
    )


def test_node_names_win_over_node_objects():
    ask = decode_args(bodies.args(bodies.pod(GPU), ["a"], [bodies.node("b")]))

    assert ask.candidates == CandidateNodes(["a"])


@pytest.mark.parametrize(
    "node",
    [
        pytest.param({"metadata": {"name": "b", "uid": "1"}}, id="name-first"),
        pytest.param({"status": {}, "metadata": {"uid": "1", "name": "b"}}, id="name-later"),
        pytest.param({"metadata": {"labels": {"name": "x"}, "name": "b"}}, id="labels-first"),
    ],
)
def test_node_objects_give_their_names(node):
    body = bodies.args(bodies.pod(GPU), nodes=[node]).replace(b", ", b",").replace(b": ", b":")

    assert decode_args(body).candidates.names == ["b"]


def test_nodes_are_sent_back_byte_for_byte():
    nodes = [bodies.node("a", spaced={" odd ": 1.50}), bodies.node("b")]
    ask = decode_args(bodies.args(bodies.pod(GPU), nodes=nodes))

    kept = keep_nodes(ask.candidates, [True, False])
    answer = encode_filter(FilterReply(node_names=kept.names), kept.bodies)
    text = b"".join(answer.pieces)
    reply = json.loads(text)

    assert reply["Nodes"] == {"metadata": {}, "items": [nodes[0]]}
    assert reply["NodeNames"] is None
    assert len(text) == answer.length


@pytest.mark.parametrize("count", [0, 1, 16, 17, 40])
def test_any_number_of_nodes_makes_one_json_text(count):
    bodies_ = [msgspec.Raw(b'{"metadata":{"name":"n%d"}}' % at) for at in range(count)]

    answer = encode_filter(FilterReply(error="x"), bodies_)

    text = b"".join(answer.pieces)
    assert len(text) == answer.length
    assert [each["metadata"]["name"] for each in json.loads(text)["Nodes"]["items"]] == [
        f"n{at}" for at in range(count)
    ]


def test_replies_are_spelt_as_go_spells_them():
    assert json.loads(encode(FilterReply(node_names=["a"], failed_nodes={}))) == {
        "Nodes": None,
        "NodeNames": ["a"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": None,
        "Error": "",
    }
    assert encode([HostScore("a", 3)]) == b'[{"Host":"a","Score":3}]'
    assert encode(BindingReply("no")) == b'{"Error":"no"}'


@pytest.mark.parametrize(
    ("form", "pods"),
    [
        pytest.param("NodeNameToMetaVictims", [{"UID": "v1"}, {"uid": "v2"}], id="short"),
        pytest.param(
            "NodeNameToVictims",
            [{"metadata": {"uid": "v1"}}, {"metadata": {"uid": "v2", "name": "x"}}],
            id="whole-pods",
        ),
        pytest.param("nodenametovictims", [{"metadata": {"uid": "v1"}}, {"UID": "v2"}], id="lower"),
    ],
)
def test_victims_are_read_in_both_forms(form, pods):
    victims = {"n0": {"Pods": pods, "NumPDBViolations": 1}}

    pod, offered = decode_preemption(json.dumps({"Pod": bodies.pod(), form: victims}).encode())

    assert pod.uid == "u0"
    assert offered == {"n0": Victims(("v1", "v2"), 1)}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "body: "),
        (b"[]", "body: Expected `object`"),
        (b"{}", "Pod is missing"),
        (b'{"Pod": 3, "NodeNames": []}', "Pod: Expected `object`"),
        (b'{"Pod": {"metadata": {"name": "p"}}}', "NodeNames and Nodes are missing"),
        (b'{"Pod": {"metadata": {"name": ""}}, "NodeNames": []}', "Pod.metadata.name=''"),
    ],
)
def test_what_is_wrong_with_a_body_is_said(body, said):
    with pytest.raises(ProtocolError, match=said.replace("[", r"\[")):
        decode_args(body)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "Pod",
                    "pod",
                    "NodeNames",
                    "Nodes",
                    "items",
                    "metadata",
                    "name",
                    "uid",
                    "UID",
                    "Pods",
                    "NodeNameToVictims",
                    "PodUID",
                    "Node",
                    "spec",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def refused_or_read(decode, body):
    try:
        decode(body)
    except ProtocolError as error:
        return bool(str(error))
    return True


@given(json_values.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=60))
def test_any_body_is_read_or_refused(body):
    for decode in (decode_args, decode_binding, decode_preemption):
        assert refused_or_read(decode, body)


@given(json_values)
def test_any_victims_are_read_or_refused(victims):
    body = json.dumps({"Pod": bodies.pod(), "NodeNameToVictims": {"n": victims}}).encode()

    assert refused_or_read(decode_preemption, body)
