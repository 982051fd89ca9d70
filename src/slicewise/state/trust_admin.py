"""What administrators see and change of trust: keys, the take-over, nodes of original agents."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from slicewise.cluster import Problem
from slicewise.dialects import DEFAULT
from slicewise.dialects.shared.signed_record import SIGNATURE, judge
from slicewise.kube import sources
from slicewise.kube.client import Client
from slicewise.kube.errors import RefusedError
from slicewise.kube.objects import ObjectReader
from slicewise.kube.reads import list_all
from slicewise.model import Node, NodeNotice, Pod, SlicewiseError, Standing, TrustPolicy
from slicewise.state.take_over import TakeOverExaminer
from slicewise.state.trust import (
    SIGNING_SECRET,
    TRUST_CONFIGMAP,
    Place,
    change_keys,
    change_trust,
    read_keys,
    read_trust_document,
)
from slicewise.trust import (
    SigningKey,
    SigningKeys,
    StoredKey,
    TrustDocument,
    TrustError,
    TrustStore,
)

_PATTERN: Final = re.compile(r"[a-z0-9*?]([-a-z0-9.*?]*[a-z0-9*?])?")
_FORBIDDEN: Final = (401, 403)
_FEWEST_LETTERS: Final = 4


@dataclass(frozen=True, slots=True)
class TrustPlaces:
    """Where keys and policy are."""

    configmap: Place = TRUST_CONFIGMAP
    secret: Place = SIGNING_SECRET


@dataclass(frozen=True, slots=True)
class KeyStatus:
    """A public key: since when it has been there, what it is for, how many pods it signed."""

    id: str
    created: int | None
    """When it was made, in seconds since 1970; None where its private key is not to be seen."""
    state: str
    pods: int


@dataclass(frozen=True, slots=True)
class TrustStatus:
    """Everything about trust in a cluster."""

    keys: tuple[KeyStatus, ...]
    policy: TrustPolicy
    standings: Mapping[Standing, int]
    waiting: tuple[str, ...] = ()
    """Pods that ran before the take-over and are not signed yet."""
    obstacles: tuple[str, ...] = ()
    """Why they are not."""
    doubtful: tuple[str, ...] = ()
    """Bound pods whose records are not believed."""
    notes: tuple[str, ...] = field(default=())


async def read_status(
    client: Client, reader: ObjectReader, places: TrustPlaces, now: float
) -> TrustStatus:
    """Keys, policy, and how far the record of each bound pod that asks for GPUs is believed."""
    document, notes = await _read_document(client, places), []
    try:
        private = await read_keys(client, places.secret)
    except RefusedError as error:
        if error.code not in _FORBIDDEN:
            raise
        private = ()
        notes.append(f"ages of keys are not known: {error.message}")
    store = TrustStore()
    store.take(document)
    store.hold(each.key for each in private)
    judged, obstacles = await _judge_pods(client, reader, store)
    signers = Counter(_signer(pod) for pod, standing in judged if standing is Standing.SIGNED)
    return TrustStatus(
        keys=_list_keys(document, private, signers, now),
        policy=document.policy,
        standings=Counter(standing for _, standing in judged),
        waiting=tuple(_names(judged, Standing.TAKE_OVER)),
        obstacles=obstacles,
        doubtful=tuple(_names(judged, Standing.UNSIGNED, Standing.FORGED)),
        notes=tuple(notes),
    )


async def rotate_key(client: Client, places: TrustPlaces, now: int) -> str:
    """The identifier of a new private key, which the extender publishes and signs with soon."""
    made = StoredKey(SigningKey.generate(), now)

    def add(keys: tuple[StoredKey, ...]) -> tuple[StoredKey, ...]:
        if not keys:
            raise TrustError(
                "there is no key yet: the extender makes it when it first starts, and one with "
                "--signing-key reads new keys from its file"
            )
        return (*keys, made)

    await change_keys(client, places.secret, add)
    return made.id


async def revoke_key(
    client: Client, places: TrustPlaces, word: str, now: int, *, public_only: bool = False
) -> tuple[str, bool]:
    """The key that nobody believes any more, and whether a new one was made in its place."""
    document, private = await _read_document(client, places), await read_keys(client, places.secret)
    held = {each.id for each in private}
    name = find_key(word, {*document.keys, *held})
    if not public_only and held.isdisjoint(document.keys):
        raise TrustError(
            f"Secret {'/'.join(places.secret)} holds no key that is published: an extender that "
            f"holds {name} elsewhere would publish it again; name its Secret with "
            "--signing-secret, or take the key out of the file of --signing-key first and pass "
            "--public-only"
        )
    renewed = held == {name}

    def strip(keys: tuple[StoredKey, ...]) -> tuple[StoredKey, ...]:
        kept = tuple(each for each in keys if each.id != name)
        # Without any key nothing could be placed.
        return kept or ((StoredKey(SigningKey.generate(), now),) if keys else ())

    # The extender publishes what is in the Secret, so the key leaves there first.
    if any(each.id == name for each in private):
        await change_keys(client, places.secret, strip)
    await change_trust(
        client,
        places.configmap,
        lambda before: replace(
            before, keys={key: text for key, text in before.keys.items() if key != name}
        ),
    )
    return name, renewed


async def begin_take_over(client: Client, places: TrustPlaces, now: int) -> TrustPolicy:
    def begin(before: TrustDocument) -> TrustDocument:
        if before.policy.taking_over:
            raise TrustError("a take-over is under way already: expected none")
        policy = replace(before.policy, takeover_began=now, takeover_ended=None)
        return replace(before, policy=policy)

    return (await change_trust(client, places.configmap, begin)).policy


async def end_take_over(client: Client, places: TrustPlaces, now: int) -> TrustPolicy:
    def end(before: TrustDocument) -> TrustDocument:
        if not before.policy.taking_over:
            raise TrustError("no take-over is under way: expected one")
        return replace(before, policy=replace(before.policy, takeover_ended=now))

    return (await change_trust(client, places.configmap, end)).policy


async def change_original_agents(
    client: Client, places: TrustPlaces, *, add: Sequence[str] = (), remove: Sequence[str] = ()
) -> tuple[str, ...]:
    """The nodes of original agents after some were added or removed."""
    for node in add:
        if _PATTERN.fullmatch(node) is None:
            raise TrustError(f"NODE {node!r}: expected a node's name, or a pattern like 'old-*'")

    def change(before: TrustDocument) -> TrustDocument:
        known = before.policy.original_nodes
        for node in remove:
            if node not in known:
                raise TrustError(f"NODE {node!r}: expected one of {', '.join(known) or 'none'}")
        kept = [each for each in dict.fromkeys((*known, *add)) if each not in remove]
        return replace(before, policy=replace(before.policy, original_nodes=tuple(kept)))

    return (await change_trust(client, places.configmap, change)).policy.original_nodes


def find_key(word: str, names: Iterable[str]) -> str:
    """The key of this identifier; its beginning is enough if no other key has it."""
    known = sorted(names)
    found = [name for name in known if name == word]
    if not found and len(word) >= _FEWEST_LETTERS:
        found = [name for name in known if name.startswith(word)]
    if len(found) != 1:
        raise TrustError(f"KEY {word!r}: expected one of {', '.join(known) or 'none'}")
    return found[0]


async def _read_document(client: Client, places: TrustPlaces) -> TrustDocument:
    found = await read_trust_document(client, places.configmap)
    if found is None:
        raise TrustError(
            f"ConfigMap {'/'.join(places.configmap)} does not exist: the extender publishes its "
            "keys there; start it, or pass --trust-configmap"
        )
    return found


async def _judge_pods(
    client: Client, reader: ObjectReader, store: TrustStore
) -> tuple[list[tuple[Pod, Standing]], tuple[str, ...]]:
    """Every bound pod that asks for GPUs, how far it is believed, and why some are not signed."""
    notices = {each.name: each for each in await list_all(client, sources.nodes(reader))}
    nodes = {name: _read_node(notice) for name, notice in notices.items()}
    examiner = TakeOverExaminer(store, notices.get, DEFAULT)
    judged, obstacles = [], set()
    for pod in await list_all(client, sources.pods(reader)):
        node = None if pod.node is None else nodes.get(pod.node)
        if node is None or not _asks_for_gpus(pod):
            continue
        judged.append((pod, judge(pod, node, store).standing))
        found = examiner.examine(pod, node)
        if isinstance(found, Problem):
            obstacles.add(f"{found.subject}: {found.detail}")
    return judged, tuple(sorted(obstacles))


def _read_node(notice: NodeNotice) -> Node:
    try:
        return DEFAULT.read_node(notice)
    except SlicewiseError:
        return Node(notice.name)


def _asks_for_gpus(pod: Pod) -> bool:
    try:
        return DEFAULT.claim(pod) is not None
    except SlicewiseError:
        return True


def _names(judged: Iterable[tuple[Pod, Standing]], *wanted: Standing) -> list[str]:
    return sorted(f"{pod.namespace}/{pod.name}" for pod, standing in judged if standing in wanted)


def _signer(pod: Pod) -> str:
    return pod.annotations.get(SIGNATURE, "").partition(".")[0]


def _list_keys(
    document: TrustDocument, private: tuple[StoredKey, ...], pods: Mapping[str, int], now: float
) -> tuple[KeyStatus, ...]:
    """Every key that is published or held, oldest first."""
    signing = SigningKeys(lambda: now)
    signing.update(private, document.keys)
    current = None if signing.current is None else signing.current.id
    created = {each.id: each.created for each in private}
    names = sorted({*document.keys, *created}, key=lambda each: (created.get(each, 0), each))
    return tuple(
        KeyStatus(
            id=name,
            created=created.get(name),
            state=_describe(name, current, created, document),
            pods=pods.get(name, 0),
        )
        for name in names
    )


def _describe(
    name: str, current: str | None, created: Mapping[str, int], document: TrustDocument
) -> str:
    if name == current:
        return "signs"
    if name not in document.keys:
        return "not published yet"
    if name not in created:
        return "verifies; its private key is elsewhere"
    newer = current is not None and created[name] > created.get(current, 0)
    return "signs soon" if newer else "verifies until no pod carries its signature"
