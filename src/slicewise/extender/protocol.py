"""The scheduler extender's wire form: requests in any letter case, replies as Go spells them.

Go's exact spelling is tried first, since schedulers send nothing else; other clients may send any
case. Whole Node objects are never decoded: only the name is read, and the bytes are sent back.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress
from typing import Any, Final, TypeVar

import msgspec

from slicewise.explain.what_if import WhatIfPod
from slicewise.httpd import Answer, Body, HttpResponse, Pieces
from slicewise.kube.names import is_name
from slicewise.kube.objects import ObjectReader, PodBody
from slicewise.model import Pod, SlicewiseError
from slicewise.model.bounds import (
    MAX_REQUEST_NODES,
    MAX_UID_LETTERS,
    MAX_VICTIMS,
    MAX_VICTIMS_BYTES,
    MAX_VICTIMS_PER_NODE,
    MAX_WHAT_IF_PODS,
)
from slicewise.state.settings import open_reader

T = TypeVar("T")
_NOTHING: Final = msgspec.Raw(b"null")
_NAME_FIRST: Final = b'{"metadata":{"name":"'
# Room for a DNS name behind the opening; a name that is longer is read the slow way.
_OPENING: Final = len(_NAME_FIRST) + 256
_NO_NODES: Final = b'{"Nodes":null'
_TOGETHER: Final = 16


class ProtocolError(SlicewiseError):
    """A request body that is not what the scheduler sends."""


class NodeItems(msgspec.Struct, gc=False):
    """A list of nodes, each as its bytes."""

    items: list[msgspec.Raw] | None = None


class ExtenderArgs(msgspec.Struct, rename="pascal", gc=False):
    pod: msgspec.Raw = _NOTHING
    nodes: NodeItems | None = None
    node_names: list[str] | None = None


class BindingArgs(msgspec.Struct, rename={"pod_uid": "PodUID"}, gc=False):
    pod_name: str | None = msgspec.field(default=None, name="PodName")
    pod_namespace: str | None = msgspec.field(default=None, name="PodNamespace")
    pod_uid: str | None = msgspec.field(default=None, name="PodUID")
    node: str | None = msgspec.field(default=None, name="Node")


class MetaPod(msgspec.Struct, gc=False):
    """A victim by its UID."""

    uid: str = msgspec.field(default="", name="UID")


class MetaVictims(msgspec.Struct, gc=False):
    """The pods to evict from one node, and how many disruption budgets that breaks."""

    pods: list[MetaPod] | None = msgspec.field(default=None, name="Pods")
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class PreemptionArgs(msgspec.Struct, rename="pascal", gc=False):
    pod: msgspec.Raw = _NOTHING
    node_name_to_victims: msgspec.Raw = _NOTHING
    node_name_to_meta_victims: msgspec.Raw = _NOTHING


class WhatIfArgs(msgspec.Struct, rename="pascal", gc=False):
    """The request of what-if: pods in the order they would arrive."""

    pods: list[ExtenderArgs] = []


class FilterReply(msgspec.Struct, rename="pascal", gc=False):
    """The reply of filter; whole nodes are put in when it is sent."""

    nodes: None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class HostScore(msgspec.Struct, rename="pascal", gc=False):
    host: str
    score: int


class BindingReply(msgspec.Struct, rename="pascal", gc=False):
    error: str = ""


class PreemptionReply(msgspec.Struct, rename="pascal", gc=False):
    node_name_to_meta_victims: dict[str, MetaVictims]


class _Meta(msgspec.Struct, gc=False):
    name: str = ""
    uid: str = ""


class _Named(msgspec.Struct, gc=False):
    metadata: _Meta | None = None


class OfferedPod(msgspec.Struct, gc=False):
    """A victim, whole or by its UID."""

    metadata: _Meta | None = None
    uid: str = msgspec.field(default="", name="UID")


class OfferedVictims(msgspec.Struct, gc=False):
    """The victims offered on one node, whole or by their UIDs."""

    pods: list[OfferedPod] | None = msgspec.field(default=None, name="Pods")
    violations: int = msgspec.field(default=0, name="NumPDBViolations")

    @property
    def victims(self) -> "Victims | None":
        """The same by UIDs; None when a key is missing, which may be spelt otherwise."""
        if self.pods is None:
            return None
        uids = tuple([each.metadata.uid if each.metadata else each.uid for each in self.pods])
        return Victims(uids, self.violations)


@dataclass(frozen=True, slots=True)
class CandidateNodes:
    """The nodes a scheduler asks about: their names, and their bytes if it sent whole objects."""

    names: list[str]
    bodies: list[msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class SchedulerRequest:
    """A decoded request of filter or prioritize."""

    pod: Pod
    candidates: CandidateNodes


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods a scheduler offers to evict from one node."""

    uids: tuple[str, ...]
    violations: int


@dataclass(frozen=True, slots=True)
class KeptNodes:
    """The nodes that a filter leaves over: by name, or as they were sent."""

    names: list[str] | None = None
    bodies: list[msgspec.Raw] | None = None


_ARGS: Final = msgspec.json.Decoder(ExtenderArgs)
_BINDING: Final = msgspec.json.Decoder(BindingArgs)
_WISHES: Final = msgspec.json.Decoder(WhatIfArgs)
_PREEMPTION: Final = msgspec.json.Decoder(PreemptionArgs)
_POD: Final = msgspec.json.Decoder(PodBody)
_NAMED: Final = msgspec.json.Decoder(_Named)
_META: "Final[msgspec.json.Decoder[_Meta | None]]" = msgspec.json.Decoder(_Meta | None)
_ANY: "Final[msgspec.json.Decoder[Any]]" = msgspec.json.Decoder()
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_OBJECTS: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_ENCODER: Final = msgspec.json.Encoder()
_VICTIMS: Final = msgspec.json.Decoder(dict[str, OfferedVictims])
_READER: Final = open_reader()


def decode_args(body: Body, reader: ObjectReader = _READER) -> SchedulerRequest:
    """The pod and the nodes of a filter or prioritize request; names win over objects."""
    args = _decode(_ARGS, body)
    if _empty(args.pod) or (args.node_names is None and args.nodes is None):
        args = _decode(_ARGS, _respell(body, {"pod": "Pod", "nodes": "Nodes"}, "NodeNames"))
    pod = decode_pod(args.pod, reader)
    if args.node_names is not None:
        _check_most("NodeNames", len(args.node_names), "nodes", MAX_REQUEST_NODES)
        return SchedulerRequest(pod, CandidateNodes(args.node_names))
    bodies = None if args.nodes is None else args.nodes.items or []
    if bodies is None:
        raise ProtocolError("NodeNames and Nodes are missing: expected one of them")
    _check_most("Nodes.items", len(bodies), "nodes", MAX_REQUEST_NODES)
    return SchedulerRequest(pod, CandidateNodes([_read_name(each) for each in bodies], bodies))


def decode_binding(body: Body) -> BindingArgs:
    args = _decode(_BINDING, body)
    keys = ("PodName", "PodNamespace", "PodUID", "Node")
    if None in (args.pod_name, args.pod_namespace, args.pod_uid, args.node):
        args = _decode(_BINDING, _respell(body, {}, *keys))
    given = (args.pod_name, args.pod_namespace, args.pod_uid, args.node)
    for key, value in zip(keys, given, strict=True):
        if not value or (key != "PodUID" and not is_name(value)):
            raise ProtocolError(f"{key}={_shorten(value)!r}: expected a name")
    return args


def decode_preemption(body: Body, reader: ObjectReader = _READER) -> tuple[Pod, dict[str, Victims]]:
    """The pod that needs room, and the victims offered on each node; the short form wins."""
    args = _decode(_PREEMPTION, body)
    full, meta = args.node_name_to_victims, args.node_name_to_meta_victims
    if _empty(args.pod) or (_empty(full) and _empty(meta)):
        keys = ("Pod", "NodeNameToVictims", "NodeNameToMetaVictims")
        args = _decode(_PREEMPTION, _respell(body, {}, *keys))
        full, meta = args.node_name_to_victims, args.node_name_to_meta_victims
    pod = decode_pod(args.pod, reader)
    field, chosen = "NodeNameToVictims", full
    if not _empty(meta):
        field, chosen = "NodeNameToMetaVictims", meta
    if _empty(chosen):
        return pod, {}
    _check_most(field, len(memoryview(chosen)), "bytes", MAX_VICTIMS_BYTES)
    offered = _read_offered(field, bytes(chosen))
    _check_most(field, len(offered), "nodes", MAX_REQUEST_NODES)
    for name, victims in offered.items():
        if len(victims.uids) > MAX_VICTIMS_PER_NODE:
            _check_most(f"{field}[{name!r}]", len(victims.uids), "pods", MAX_VICTIMS_PER_NODE)
    _check_most(field, sum(len(each.uids) for each in offered.values()), "pods", MAX_VICTIMS)
    return pod, offered


def _check_most(field: str, number: int, what: str, most: int) -> None:
    if number > most:
        raise ProtocolError(f"{field}: {number} {what}: expected at most {most}")


def _read_offered(field: str, text: bytes) -> dict[str, Victims]:
    """The victims as Go spells them; what is spelt otherwise is read one by one."""
    try:
        found = {name: each.victims for name, each in _VICTIMS.decode(text).items()}
        if all(each is not None and all(each.uids) for each in found.values()):
            return {name: each for name, each in found.items() if each is not None}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # The slow way says what is wrong.
        pass
    _check_most(field, text.count(b"{"), "objects", 2 * MAX_VICTIMS)
    nodes = _decode(_OBJECT, text, field)
    return {name: _read_victims(f"{field}[{name!r}]", raw) for name, raw in nodes.items()}


def decode_what_if(
    body: Body, most: int = MAX_WHAT_IF_PODS, reader: ObjectReader = _READER
) -> list[WhatIfPod]:
    """The pods of a what-if request, each under a UID that no pod has."""
    args = _decode(_WISHES, body)
    if not args.pods:
        raise ProtocolError("Pods is empty: expected pods")
    if len(args.pods) > most:
        raise ProtocolError(f"{len(args.pods)} pods: expected at most {most}")
    names = sum(len(each.node_names or ()) for each in args.pods)
    _check_most("Pods", names, "nodes", MAX_REQUEST_NODES)
    return [
        WhatIfPod(
            replace(decode_pod(each.pod, reader), uid=f"what-if/{at}", node=None), each.node_names
        )
        for at, each in enumerate(args.pods)
    ]


def decode_pod(raw: bytes | msgspec.Raw, reader: ObjectReader = _READER) -> Pod:
    if _empty(raw):
        raise ProtocolError("Pod is missing: expected a pod")
    body = _decode(_POD, bytes(raw), "Pod")
    meta = body.metadata
    # These become part of the path of a write.
    if not is_name(meta.name):
        raise ProtocolError(f"Pod.metadata.name={_shorten(meta.name)!r}: expected a name")
    if len(meta.uid) > MAX_UID_LETTERS:
        uid = _shorten(meta.uid)
        raise ProtocolError(
            f"Pod.metadata.uid={uid!r}: {len(meta.uid)} letters: expected at most {MAX_UID_LETTERS}"
        )
    if meta.namespace and not is_name(meta.namespace):
        named = _shorten(meta.namespace)
        raise ProtocolError(f"Pod.metadata.namespace={named!r}: expected a name")
    return reader.read_pod(body)


def encode(reply: Any) -> bytes:
    return _ENCODER.encode(reply)


def keep_nodes(candidates: CandidateNodes, fits: Sequence[bool]) -> KeptNodes:
    """The nodes that fit, in the form in which they were sent."""
    if candidates.bodies is not None:
        return KeptNodes(bodies=list(compress(candidates.bodies, fits)))
    return KeptNodes(names=list(compress(candidates.names, fits)))


def encode_filter(reply: FilterReply, bodies: Sequence[msgspec.Raw] | None) -> Answer:
    """The reply as an answer; nodes that were sent whole go back byte for byte."""
    text = _ENCODER.encode(reply)
    if bodies is None:
        return HttpResponse(200, text)
    # Fifty megabytes are not copied once more into one body.
    opening, closing = b'{"Nodes":{"metadata":{},"items":[', b"]}" + text.removeprefix(_NO_NODES)
    length = len(opening) + len(closing) + max(0, len(bodies) - 1)
    length += sum(len(memoryview(body)) for body in bodies)
    return Pieces(length, chain((opening,), _join(bodies), (closing,)))


def _join(bodies: Sequence[msgspec.Raw]) -> Iterator[bytes]:
    """The nodes with commas between them, several at a time."""
    for at in range(0, len(bodies), _TOGETHER):
        text = b",".join(bodies[at : at + _TOGETHER])
        yield b"," + text if at else text


def _read_victims(field: str, raw: msgspec.Raw) -> Victims:
    entry = {key.lower(): value for key, value in _decode(_OBJECT, bytes(raw), field).items()}
    pods = entry.get("pods", _NOTHING)
    violations = entry.get("numpdbviolations", _NOTHING)
    count = 0 if _empty(violations) else _decode(_ANY, bytes(violations), field)
    if not isinstance(count, int) or isinstance(count, bool):
        raise ProtocolError(f"{field}.NumPDBViolations={count!r}: expected a whole number")
    listed = [] if _empty(pods) else _decode(_OBJECTS, bytes(pods), f"{field}.Pods")
    return Victims(tuple(_read_uid(field, pod) for pod in listed), count)


def _read_uid(field: str, pod: Mapping[str, msgspec.Raw]) -> str:
    """A victim's UID, of a whole pod or of its short form."""
    if "metadata" in pod:
        meta = _decode(_META, bytes(pod["metadata"]), f"{field}.Pods")
        uid: Any = None if meta is None else meta.uid
    else:
        short = {key.lower(): value for key, value in pod.items()}.get("uid", _NOTHING)
        uid = _decode(_ANY, bytes(short), f"{field}.Pods")
    if not isinstance(uid, str) or not uid:
        raise ProtocolError(f"{field}.Pods: UID={uid!r}: expected a UID")
    return uid


def _read_name(raw: msgspec.Raw) -> str:
    """A node's name; Go writes it first, so the rest need not be decoded."""
    opening = bytes(memoryview(raw)[:_OPENING])
    if opening.startswith(_NAME_FIRST):
        name, quote, _ = opening[len(_NAME_FIRST) :].partition(b'"')
        if quote and b"\\" not in name:
            return name.decode("utf-8", "replace")
    named = _decode(_NAMED, bytes(raw), "Nodes.items")
    if named.metadata is None or not named.metadata.name:
        raise ProtocolError("Nodes.items: metadata.name is missing: expected a name")
    return named.metadata.name


def _respell(body: Body, more: Mapping[str, str], *keys: str) -> bytes:
    """The body with its top-level keys as Go spells them; an exact key wins over another case."""
    spelling = {**more, **{key.lower(): key for key in keys}}
    given = _decode(_OBJECT, body)
    found = {
        spelling[key.lower()]: raw
        for key, raw in sorted(given.items(), reverse=True)
        if key.lower() in spelling and not _empty(raw)
    }
    return _ENCODER.encode(found)


def _decode(decoder: "msgspec.json.Decoder[T]", body: Body, field: str = "body") -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"{field}: {error}") from error


def _shorten(text: str | None) -> str | None:
    return text if text is None else text[:80]


def _empty(raw: bytes | msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:5]).strip() == b"null" or not memoryview(raw)
