"""What people ask about pods: why one is where it is, and where those of manifests would go."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from slicewise.explain.answer_text import fits_somewhere
from slicewise.explain.candidates import LeftOut
from slicewise.explain.claim_what_if import ClaimOutcome, add_claims
from slicewise.explain.defrag_plans import FEW_MOVES, describe_plan
from slicewise.explain.manifests import Manifests, PodTemplate
from slicewise.extender.client.calls import (
    ExtenderTarget,
    NoAnswerError,
    add_suggestions,
    fetch,
    open_call,
    open_defrag,
)
from slicewise.kube.client import Call, Client
from slicewise.kube.errors import RefusedError
from slicewise.kube.reads import read_one
from slicewise.placement.defrag import SearchLimits
from slicewise.state.candidates import SchedulerView
from slicewise.state.claim_queries import explain_claims, index_manifests, place_pod_claims
from slicewise.state.defrag.node_groups import describe_groups, read_groups, sort_pending
from slicewise.state.settings import open_reader

WantedPod = tuple[dict[str, Any], list[str] | None, LeftOut]
_FEW: Final = SearchLimits(moves=FEW_MOVES, trials=500)
_NOTHING: Final[dict[str, Any]] = {"fits": True, "fitting": 0, "pods": []}


async def explain_pod(
    client: Client, target: ExtenderTarget, namespace: str, name: str, node: str | None = None
) -> dict[str, Any]:
    """The answer for a pod that exists, about the nodes the scheduler would ask about."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    body = await read_one(client, Call("get", "pods", path), dict)
    if body is None:
        raise NoAnswerError(f"pod '{namespace}/{name}': not found")
    claimed = await explain_claims(client, body)
    answer = await _explain_request(client, target, body, node)
    return {**answer, "claims": claimed} if claimed else answer


async def _explain_request(
    client: Client, target: ExtenderTarget, body: dict[str, Any], node: str | None
) -> dict[str, Any]:
    """The answer for what the pod asks for by resource names."""
    candidates = await SchedulerView.read(client, open_reader())
    names, left_out = candidates.choose(body["spec"], placed=True)
    if node is not None:
        names = [each for each in names if each == node]
        left_out = [each for each in left_out if each["node"] == node]
        if not names and not left_out:
            raise NoAnswerError(f'node "{node}" not found')
    async with open_call(client, target) as ask:
        answer = await ask("/explain", {"Pod": body, "NodeNames": names})
        await add_suggestions(ask, body, answer, left_out)
    if node is None and not fits_somewhere(answer):
        answer |= await _find_moves(client, target, body["metadata"]["uid"])
    return {**answer, "leftOut": left_out} if left_out else answer


async def _find_moves(client: Client, target: ExtenderTarget, uid: str) -> dict[str, Any]:
    """A few moves after which the pod would fit, if there are such and they may be looked for."""
    try:
        async with open_defrag(client, target) as look:
            view = await look()
            pod = next((each for each in view.waiting() if each.uid == uid), None)
            if pod is None:
                return {}
            query = view.ask(pod)
            outcome = view.plan(query, _FEW)
            if outcome.plan is None or not outcome.plan.moves:
                return {}
            return {"afterMoves": describe_plan(query, outcome, view.obstacles)}
    except (RefusedError, NoAnswerError) as error:
        # The answer itself is there already.
        target.warn(f"moves that would make room were not looked for: {error}")
        return {}


async def ask_node_groups(
    client: Client, target: ExtenderTarget, documents: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What each group's new nodes would take, and what each pod that waits needs."""
    groups = read_groups(open_reader(), documents)
    async with open_defrag(client, target) as look:
        view = await look()
        pods = sort_pending(view, SearchLimits())
        return describe_groups(groups, pods)


def ask_address(
    target: ExtenderTarget, templates: Sequence[PodTemplate], namespace: str
) -> dict[str, Any]:
    """What an extender says, which knows GPUs and nothing of taints and selectors."""
    daemon = next((each.name for each in templates if each.per_node), None)
    if daemon is not None:
        raise NoAnswerError(
            f"DaemonSet {daemon}: its nodes are known to the API alone; leave --url out"
        )
    claiming = next((each.name for each in templates if each.pod["spec"].get("resourceClaims")), "")
    if claiming:
        raise NoAnswerError(f"{claiming}: its claims are known to the API alone; leave --url out")
    wanted: list[WantedPod] = [(pod, None, []) for pod in _make_all(templates, namespace)]
    return _combine(fetch(target, "/what-if", body=_body(wanted)) if wanted else _NOTHING, wanted)


async def ask_cluster(
    client: Client,
    target: ExtenderTarget,
    manifests: Manifests,
    namespace: str | None = None,
) -> dict[str, Any]:
    """What the cluster's state says, about the nodes the scheduler would ask about."""
    candidates = await SchedulerView.read(client, open_reader())
    home = namespace or client.access.namespace
    wanted = [
        each_pod for each in manifests.templates for each_pod in _want(each, candidates, home)
    ]
    if not wanted:
        return _NOTHING
    try:
        index = index_manifests(manifests.claims, home)
        outcomes = await place_pod_claims(client, wanted, index)
    except RefusedError as error:
        raise NoAnswerError(f"claims may not be read: {error.message}") from error
    wanted = [_narrow(each, outcomes.get(at)) for at, each in enumerate(wanted)]
    async with open_call(client, target) as ask:
        answer = _combine(await ask("/what-if", _body(wanted)), wanted)
        add_claims(answer, outcomes)
        first, (pod, _, left_out) = answer["pods"][0], wanted[0]
        # Later pods were refused by a cluster that has the earlier ones on it.
        if "claims" not in first:
            await add_suggestions(ask, pod, first, left_out)
        return answer


def _make_all(templates: Sequence[PodTemplate], namespace: str) -> Iterator[dict[str, Any]]:
    for each in templates:
        for at in range(each.count):
            yield each.make(at, namespace)


def _want(template: PodTemplate, candidates: SchedulerView, namespace: str) -> Iterator[WantedPod]:
    """Each pod with the nodes it may go to; a DaemonSet has one for each of them."""
    names, left_out = candidates.choose(template.pod["spec"])
    if template.per_node:
        for at, name in enumerate(names):
            yield template.make(at, namespace), [name], []
        return
    for at in range(template.count):
        yield template.make(at, namespace), names, left_out


def _narrow(wanted: WantedPod, outcome: ClaimOutcome | None) -> WantedPod:
    """The pod put to the nodes alone that can take its claims, where there are any."""
    pod, _, left_out = wanted
    return (pod, list(outcome.places), left_out) if outcome and outcome.places else wanted


def _body(wanted: Sequence[WantedPod]) -> dict[str, Any]:
    return {"Pods": [{"Pod": pod, "NodeNames": names} for pod, names, _ in wanted]}


def _combine(answer: dict[str, Any], wanted: Sequence[WantedPod]) -> dict[str, Any]:
    """The answer with the nodes that were never asked about."""
    for told, (_, _, left_out) in zip(answer["pods"], wanted, strict=True):
        if left_out and not told["fits"]:
            told["leftOut"] = left_out
    return answer
