"""What people send who know the protocol and mean no good, or do not know it at all."""

import copy
import gzip
import json

from hypothesis import strategies as st

from extender import bodies

SHARE = {"slicewise.io/cores": 30, "slicewise.io/memory": 4096}
KEYS = [
    "Pod",
    "pod",
    "POD",
    "NodeNames",
    "Nodes",
    "items",
    "metadata",
    "name",
    "uid",
    "spec",
    "containers",
    "limits",
    "resources",
    "annotations",
    "Node",
    "PodUID",
    "UID",
]
GOOD = bodies.args(bodies.pod(SHARE), names=["n0", "n1"])

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["n0", "p0", "u0", "default", "../../nodes/n0", "\0", "é", "1Gi", "1e999"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


def shapes():
    """What schedulers send, of every verb."""
    whole = {"Pods": [{"metadata": {"uid": "u1"}}], "NumPDBViolations": 0}
    limits = [
        SHARE,
        {"nvidia.com/gpu": 1},
        {"aliyun.com/gpu-mem": 3},
        {"tencent.com/vcuda-core": 9},
    ]
    return [
        *(json.loads(bodies.args(bodies.pod(each), names=["n0", "zz"])) for each in limits),
        json.loads(bodies.args(bodies.pod(SHARE), nodes=[bodies.node("n0")])),
        json.loads(bodies.binding("n0")),
        {"Pod": bodies.pod(SHARE), "NodeNameToVictims": {"n0": whole}},
        {"Pod": bodies.pod(SHARE), "NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": "u1"}]}}},
    ]


def places(value, path=()):
    """Every place in a document."""
    yield path
    parts = value.items() if isinstance(value, dict) else ()
    for key, part in enumerate(value) if isinstance(value, list) else parts:
        yield from places(part, (*path, key))


@st.composite
def damaged(draw):
    """What schedulers send, with one place of it replaced, dropped or renamed."""
    document = copy.deepcopy(draw(st.sampled_from(shapes())))
    path = draw(st.sampled_from([each for each in places(document) if each]))
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    match draw(st.sampled_from(["replace", "drop", "case"])):
        case "replace":
            parent[path[-1]] = draw(anything)
        case "drop":
            del parent[path[-1]]
        case "case" if isinstance(path[-1], str):
            parent[path[-1].swapcase()] = parent.pop(path[-1])
    return json.dumps(document).encode()


@st.composite
def broken_bytes(draw):
    """Those bytes cut short, or with some of them changed."""
    content = bytearray(draw(damaged()))
    if draw(st.booleans()):
        return bytes(content[: draw(st.integers(0, len(content)))])
    for _ in range(draw(st.integers(1, 4))):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content)


CORPUS = {
    "empty": b"",
    "nul": b"\0" * 64,
    "nul-in-name": b'{"Pod":{"metadata":{"name":"a\\u0000b"}},"NodeNames":[]}',
    "truncated": GOOD[:-7],
    "trailing": GOOD + b"}}",
    "deep-lists": b"[" * 100_000,
    "deep-objects": b'{"Pod":' * 50_000,
    "deep-inside": b'{"Pod":{"spec":' + b"[" * 60_000 + b"]" * 60_000 + b'},"NodeNames":[]}',
    "huge-number": b'{"Pod":' + b"9" * 100_000 + b',"NodeNames":[]}',
    "huge-exponent": GOOD.replace(b'"priority": 0', b'"priority": 1e99999'),
    "huge-amount": bodies.args(bodies.pod({"nvidia.com/gpu": 10**30}), names=["n0"]),
    "negative-amount": bodies.args(bodies.pod({"nvidia.com/gpu": -1}), names=["n0"]),
    "invalid-utf8": b'{"Pod":{"metadata":{"name":"\xff\xfe"}},"NodeNames":["\xc3("]}',
    "surrogate": b'{"Pod":{"metadata":{"name":"\\ud800"}},"NodeNames":["\\udfff"]}',
    "bom": b"\xef\xbb\xbf" + GOOD,
    "utf16": GOOD.decode().encode("utf-16"),
    "duplicate-keys": b'{"Pod":1,"Pod":null,"pod":[],' + GOOD[1:],
    "any-case": GOOD.replace(b'"NodeNames"', b'"nODEnAMES"').replace(b'"Pod"', b'"pOD"'),
    "many-names": bodies.args(bodies.pod(SHARE), names=["n0"] * 100_000),
    "long-name": bodies.args(bodies.pod(SHARE), names=["x" * 1_000_000]),
    "many-containers": json.dumps(
        {
            "Pod": {
                "metadata": {"name": "a", "uid": "u"},
                "spec": {
                    "containers": [
                        {"name": f"c{at}", "resources": {"limits": SHARE}} for at in range(5_000)
                    ]
                },
            },
            "NodeNames": ["n0"],
        }
    ).encode(),
    "path-in-name": bodies.args(bodies.pod(SHARE, name="../../../nodes/n0"), names=["n0"]),
    "path-in-namespace": bodies.args(bodies.pod(SHARE, namespace="x/../../nodes"), names=["n0"]),
    "path-in-binding": bodies.binding("n0", name="../../../nodes/n0"),
    "query-in-binding": bodies.binding("n0", name="p0?dryRun=All"),
    "compressed": gzip.compress(GOOD),
}
