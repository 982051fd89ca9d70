"""The handlers of the extender's verbs: decode, decide, encode, with metrics and logs.

Schedulers read the body only of a 200, so errors are answered with 200 and the reason in `Error`.
"""

import asyncio
import time
from typing import Any, Final

import structlog

from slicewise.dialects import DEFAULT, Dialects
from slicewise.dialects.shared.routes import RouteOptions
from slicewise.explain.explanation import PodInquiry, explain_pod
from slicewise.explain.pod_query import refuse_misspelt
from slicewise.explain.what_if import (
    WhatIfOutcome,
    WhatIfPod,
    describe_outcomes,
    inquire,
    simulate,
)
from slicewise.extender.binder import Binder, BindTimeouts
from slicewise.extender.decisions import Decisions, Filtered
from slicewise.extender.evictor import Evictor
from slicewise.extender.filters import CommitFilter, HoldFilter, PlaceFilter
from slicewise.extender.metrics import Metrics
from slicewise.extender.protocol import (
    BindingReply,
    FilterReply,
    HostScore,
    PreemptionReply,
    ProtocolError,
    SchedulerRequest,
    decode_args,
    decode_binding,
    decode_preemption,
    decode_what_if,
    encode,
    encode_filter,
)
from slicewise.extender.room_requests import decode_room
from slicewise.httpd import Answer, Body, HttpResponse
from slicewise.kube.names import is_name
from slicewise.kube.outcomes import ClusterWriter
from slicewise.model import Pod, SlicewiseError
from slicewise.model.bounds import MAX_WHAT_IF_PODS
from slicewise.state.cluster_state import ClusterState
from slicewise.state.queries import NotReadyError, PodQueries
from slicewise.state.settings import open_reader

TEXT: Final = "text/plain; charset=utf-8"


_PLAIN: Final = RouteOptions()
_LARGE_BODY: Final = 1 << 16


class Extender:
    """Handles every verb, from the bytes of a request to the answer."""

    def __init__(
        self,
        state: ClusterState,
        writer: ClusterWriter,
        *,
        timing: BindTimeouts | None = None,
        dialects: Dialects = DEFAULT,
        metrics: Metrics | None = None,
    ) -> None:
        self.state = state
        self.dialects = dialects
        clock = (timing or BindTimeouts()).clock
        self.decisions = Decisions(PodQueries(state, dialects), clock)
        self.binder = Binder(self.decisions.queries, writer, timing)
        self.committer = CommitFilter(self.decisions, self.binder)
        self.placer = PlaceFilter(self.decisions, self.binder)
        self.holder = HoldFilter(self.decisions, clock)
        self.metrics = metrics or Metrics(state)
        self.evictor: Evictor | None = None
        """Helps refused pods; without one, only the scheduler evicts."""
        self._reader = open_reader(dialects)
        self._writer = writer
        self._log = structlog.get_logger(__name__).bind()

    async def filter(self, body: Body, options: RouteOptions = _PLAIN) -> Answer:
        start = time.perf_counter()
        try:
            with self.metrics.stage("filter", "decode"):
                args = decode_args(body, self._reader)
        except ProtocolError as error:
            self.metrics.decided("filter", "BadRequest")
            return _refuse(options, FilterReply(error=str(error)))
        await _let_others_run(body)
        try:
            with self.metrics.stage("filter", "decide"):
                filtered = await self._filter(args, options)
        except SlicewiseError as error:
            filtered = Filtered(FilterReply(error=str(error)), 0, {_code(error): 1})
        with self.metrics.stage("filter", "encode"):
            response = encode_filter(filtered.reply, filtered.bodies)
        self._note_filter(args, filtered, start)
        return response

    async def _filter(self, args: SchedulerRequest, options: RouteOptions) -> Filtered:
        if options.commits:
            return await self.committer.filter(args)
        if options.places:
            return await self.placer.filter(args)
        return (self.holder if options.holds else self.decisions).filter(args)

    async def prioritize(self, body: Body, options: RouteOptions = _PLAIN) -> HttpResponse:
        """The points of each node; 0 for all when the pod cannot be judged."""
        try:
            with self.metrics.stage("prioritize", "decode"):
                args = decode_args(body, self._reader)
        except ProtocolError as error:
            return _text(400, f"{error}\n")
        await _let_others_run(body)
        try:
            with self.metrics.stage("prioritize", "decide"):
                decisions = self.decisions
                judge = decisions.count_free if options.counts_free else decisions.prioritize
                scores = judge(args)
            self.metrics.decided("prioritize", "Scored")
        except SlicewiseError as error:
            self.metrics.decided("prioritize", _code(error))
            scores = [HostScore(name, 0) for name in args.candidates.names]
        with self.metrics.stage("prioritize", "encode"):
            return _json(scores)

    async def preempt(self, body: Body, options: RouteOptions = _PLAIN) -> HttpResponse:  # noqa: ARG002
        """On which nodes evicting pods makes room, and which pods."""
        try:
            with self.metrics.stage("preempt", "decode"):
                pod, offered = decode_preemption(body, self._reader)
        except ProtocolError as error:
            return _text(400, f"{error}\n")
        await _let_others_run(body)
        reason = "Helped"
        try:
            with self.metrics.stage("preempt", "decide"):
                reply = await self.decisions.preempt(pod, offered)
        except SlicewiseError as error:
            reply, reason = PreemptionReply({}), _code(error)
        chosen = reply.node_name_to_meta_victims
        if chosen and self.evictor is not None:
            self.evictor.forget(pod.uid)
        self.metrics.decided("preempt", reason if chosen or reason != "Helped" else "NoHelp")
        self._log.info(
            "preemption answered",
            pod=_name(pod),
            offered=len(offered),
            nodes=len(chosen),
            reason=reason,
        )
        return _json(reply)

    async def bind(self, body: Body, options: RouteOptions = _PLAIN) -> HttpResponse:  # noqa: ARG002
        start = time.perf_counter()
        try:
            with self.metrics.stage("bind", "decode"):
                args = decode_binding(body)
        except ProtocolError as broken:
            self.metrics.decided("bind", "BadRequest")
            return _json(BindingReply(str(broken)))
        gpus = ""
        try:
            with self.metrics.stage("bind", "write"):
                bound = await self.binder.bind(args)
            error, reason = bound.error, bound.reason
            if bound.allocation is not None:
                gpus = ",".join(map(str, bound.allocation.gpus))
        except SlicewiseError as failure:
            error, reason = str(failure), _code(failure)
        self.metrics.decided("bind", reason)
        self._log.info(
            "pod placed" if not error else "pod not placed",
            pod=f"{args.pod_namespace}/{args.pod_name}",
            node=args.node,
            gpus=gpus,
            reason=reason,
            error=error,
            ms=_since(start),
        )
        return _json(BindingReply(error))

    async def explain(self, body: Body, query: dict[str, str]) -> HttpResponse:
        """Why the pod is where it is, or nowhere: by its name, or by a filter's body."""
        try:
            if body:
                args = decode_args(body, self._reader)
                pod, names = args.pod, args.candidates.names
            else:
                found = await self._find(query.get("pod", ""))
                if found is None:
                    return _json({"error": f"pod {query.get('pod', '')!r}: not found"}, 404)
                pod = found
                wanted = query.get("node")
                names = [wanted] if wanted else sorted(self.state.snapshot().slots)
            with self.metrics.stage("explain", "decide"):
                refuse_misspelt(pod, self.dialects)
                pod_query = self.decisions.queries.build(pod)
                held = self.state.ledger.allocation(pod.uid) or ()
                screening = self.decisions.screen(pod_query, names)
                await asyncio.sleep(0)
                inquiry = PodInquiry.of(pod_query, names, screening, held)
            # The smallest change may take seconds to find, and schedulers must not wait for it.
            return _json(await asyncio.to_thread(explain_pod, inquiry))
        except NotReadyError as error:
            return _json({"error": str(error)}, 503)
        except SlicewiseError as error:
            return _json({"error": str(error)}, 400)

    async def what_if(self, body: Body, most: int = MAX_WHAT_IF_PODS) -> HttpResponse:
        """Where pods that do not exist yet would be placed, one after another, or why not."""
        try:
            pods = decode_what_if(body, most, self._reader)
            with self.metrics.stage("what-if", "decide"):
                outcomes = await self._simulate(pods)
            return _json(await asyncio.to_thread(describe_outcomes, outcomes))
        except NotReadyError as error:
            return _json({"error": str(error)}, 503)
        except SlicewiseError as error:
            return _json({"error": str(error)}, 400)

    async def keep_room(self, body: Body) -> HttpResponse:
        """Keep room on a node for a pod while others are moved away from there."""
        try:
            asked = decode_room(body)
            pod = self.state.ledger.pod(asked.pod)
            if pod is None or pod.node is not None:
                return _json({"error": f"pod {asked.pod!r}: no such pod waits for a node"}, 404)
            self.decisions.queries.build(pod)
            self.decisions.nominations.nominate(pod, {asked.node: asked.victims}, asked.node)
        except NotReadyError as error:
            return _json({"error": str(error)}, 503)
        except SlicewiseError as error:
            return _json({"error": str(error)}, 400)
        self._log.info("room kept", pod=_name(pod), node=asked.node, victims=len(asked.victims))
        return _json({})

    async def _simulate(self, pods: list[WhatIfPod]) -> list[WhatIfOutcome]:
        outcomes = []
        for outcome in simulate(self.decisions.queries, self.state.snapshot(), pods):
            # Schedulers must not wait for all of them.
            await asyncio.sleep(0)
            outcomes.append(inquire(self.decisions.queries, outcome))
            await asyncio.sleep(0)
        return outcomes

    async def _find(self, name: str) -> Pod | None:
        namespace, _, short = name.rpartition("/")
        if not is_name(short) or (namespace and not is_name(namespace)):
            raise ProtocolError(f"pod={name[:160]!r}: expected namespace/name")
        return await self._writer.read_pod(namespace or "default", short)

    def _note_filter(self, args: SchedulerRequest, filtered: Filtered, start: float) -> None:
        for reason, count in filtered.reasons.items():
            self.metrics.decided("filter", reason, count)
        if filtered.passing:
            self.metrics.decided("filter", "Fits", filtered.passing)
            if self.evictor is not None:
                self.evictor.forget(args.pod.uid)
        elif self.evictor is not None and not filtered.reply.error:
            self.evictor.note_refusal(args.pod, args.candidates.names)
        self._log.info(
            "pod filtered",
            pod=_name(args.pod),
            nodes=len(args.candidates.names),
            passing=filtered.passing,
            reasons=filtered.reasons,
            error=filtered.reply.error,
            ms=_since(start),
        )


async def _let_others_run(body: Body) -> None:
    """Yield between reading a large body and deciding on it."""
    if len(body) > _LARGE_BODY:
        await asyncio.sleep(0)


def _refuse(options: RouteOptions, reply: FilterReply) -> HttpResponse:
    if options.bad_body == 200:
        return _json(reply)
    return _text(options.bad_body, f"{reply.error}\n")


def _json(value: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(status, encode(value))


def _text(status: int, text: str) -> HttpResponse:
    return HttpResponse(status, text.encode(), content_type=TEXT)


def _code(error: SlicewiseError) -> str:
    return type(error).__name__.removesuffix("Error")


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _since(start: float) -> float:
    return round(1e3 * (time.perf_counter() - start), 3)
