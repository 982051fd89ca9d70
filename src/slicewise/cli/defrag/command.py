"""`slicewise defrag [POD]`: prints a plan of moves, and carries it out when told to."""

import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from slicewise.cli.cluster_access import (
    CannotTell,
    ClusterFlags,
    cluster_options,
    run_connected,
)
from slicewise.cli.extender_client import (
    ExtenderTarget,
    ask_running,
    open_here,
    read_target,
    target_options,
)
from slicewise.cli.render.terminal import echo, echo_json
from slicewise.explain.defrag_plans import describe_mix_plan, describe_plan, find_unfit_shapes
from slicewise.explain.defrag_text import describe_plans
from slicewise.extender.handlers import Extender
from slicewise.kube.client import Client
from slicewise.model import Pod
from slicewise.placement.defrag import DefragPlan, SearchLimits, plan_moves
from slicewise.state.defrag.defrag_view import ClusterReading, DefragView
from slicewise.state.defrag.marks import find_mark, write_mark
from slicewise.state.defrag.node_groups import sort_pending
from slicewise.state.defrag.plan_runner import PlanEdges, PlanRunner, PlanStoppedError
from slicewise.state.settings import open_reader

Plans = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class DefragFlags:
    """What a person asks for."""

    pod: str | None
    namespace: str | None
    most: int
    evict: bool
    seconds: float
    quiet: bool
    mark_seconds: float | None = None
    """How long marks hold; none writes no marks."""


@click.command(short_help="Plan moves of pods after which one that waits fits.")
@click.argument("pod", required=False)
@click.option("-n", "--namespace", help="Namespace of the pod [default: the context's].")
@click.option("--max-moves", type=click.IntRange(1, 32), default=8, show_default=True,
              help="Number of pods to move at most for one that waits.")  # fmt: skip
@click.option("--evict", is_flag=True, help="Carry the plan for POD out: evict pod by pod, each "
              "when the one before runs again, and keep the room for POD. Needs --service or "
              "--url, for only the extender that the scheduler asks can keep it.")  # fmt: skip
@click.option("--move-seconds", type=click.FloatRange(1), default=300.0, show_default=True,
              help="With --evict: time for one moved pod to run again, and for POD to be placed "
              "at the end.")  # fmt: skip
@click.option(
    "--mark",
    is_flag=True,
    help="Annotate the pods that fit after moves, so that "
    "Cluster Autoscaler buys no node for them, and take the marks off others.",
)
@click.option("--mark-seconds", type=click.FloatRange(60), default=600.0, show_default=True,
              help="With --mark: how long no node is bought for a pod from now on.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON, for scripts.")
@target_options
@cluster_options
def defrag(pod: str | None, output: str | None, **flags: Any) -> None:
    """Say which pods to move so that POD fits, or each pod that waits, or more of the usual ones.

    Only pods with a controller are moved, within their disruption budgets. Nothing is evicted
    without --evict, and nothing written without that or --mark.

    Exits with 0 when there is a plan or none is needed, 1 when a pod has none or the plan was
    stopped, 2 when that cannot be determined.
    """
    target = read_target(flags)
    wanted = DefragFlags(
        pod=pod,
        namespace=flags.pop("namespace"),
        most=flags.pop("max_moves"),
        evict=flags.pop("evict"),
        seconds=flags.pop("move_seconds"),
        quiet=output == "json",
        mark_seconds=_read_marks(flags),
    )
    if wanted.mark_seconds is not None and pod is not None:
        raise click.UsageError("--mark looks at every pod that waits: leave POD away")
    if wanted.evict and pod is None:
        raise click.UsageError("--evict carries out the plan of one pod: name it")
    if wanted.evict and not (target.url or target.service):
        raise click.UsageError("--evict: pass --service or --url, by which room is kept")

    async def work(client: Client) -> Plans:
        async with open_look(client, target) as look:
            return await _Command(client, target, wanted, look).run()

    plans = run_connected(ClusterFlags(**flags), work, CannotTell)
    if wanted.quiet:
        echo_json(plans)
    raise SystemExit(0 if all(plan["fits"] and not plan.get("stopped") for plan in plans) else 1)


def _read_marks(flags: dict[str, Any]) -> float | None:
    seconds: float = flags.pop("mark_seconds")
    return seconds if flags.pop("mark") else None


class Look:
    """Reads the cluster as it is whenever it is called; the ledger beneath stays current."""

    def __init__(self, client: Client, extender: Extender) -> None:
        self._client = client
        self._queries = extender.decisions.queries
        self._reader = open_reader()

    async def __call__(self, planned: frozenset[str] = frozenset()) -> DefragView:
        reading = await ClusterReading.read(self._client, self._reader)
        return DefragView(self._queries, reading, time.time(), planned)


@contextlib.asynccontextmanager
async def open_look(client: Client, target: ExtenderTarget) -> AsyncIterator[Look]:
    """A ledger of this process, kept current, to plan on."""
    async with open_here(client, target) as extender:
        yield Look(client, extender)


class _Command:
    def __init__(
        self, client: Client, target: ExtenderTarget, wanted: DefragFlags, look: Look
    ) -> None:
        self._client = client
        self._target = target
        self._wanted = wanted
        self._look = look
        self._limits = SearchLimits(moves=wanted.most)

    async def run(self) -> Plans:
        view = await self._look()
        if self._wanted.mark_seconds is not None:
            await self._mark(view, self._wanted.mark_seconds)
        if self._wanted.pod is None:
            plans = self._plan_all(view) or self._plan_mix(view)
            self._show(plans)
            return plans
        pod = self._find(view, self._wanted.pod)
        query = view.ask(pod)
        outcome = view.plan(query, self._limits)
        told = describe_plan(query, outcome, view.obstacles)
        self._show([told])
        if self._wanted.evict and outcome.plan is not None and outcome.plan.moves:
            told |= await self._carry_out(pod, outcome.plan)
        return [told]

    def _show(self, plans: Plans) -> None:
        for line in () if self._wanted.quiet else describe_plans(plans):
            echo(line)

    def _find(self, view: DefragView, word: str) -> Pod:
        space, _, name = word.rpartition("/")
        home = space or self._wanted.namespace or self._client.access.namespace
        for pod in view.waiting():
            if (pod.namespace, pod.name) == (home, name):
                return pod
        raise CannotTell(f"pod '{home}/{name}': no such pod asks for GPUs and has no node")

    def _plan_all(self, view: DefragView) -> Plans:
        """Plans of all pods that wait and fit nowhere."""
        found = []
        for pod in view.waiting():
            query = view.ask(pod)
            if query.planner.place(query.snapshot, query.wanted) is None:
                outcome = view.plan(query, self._limits)
                found.append(describe_plan(query, outcome, view.obstacles))
        return found

    def _plan_mix(self, view: DefragView) -> Plans:
        """The plan that makes most room for the moves it takes, for a shape of the learned mix."""
        state = view.queries.state
        planner, snapshot = state.planner(), state.snapshot()
        movable = list(view.movable.values())
        found = []
        for shape in find_unfit_shapes(planner, snapshot):
            outcome = plan_moves(planner, snapshot, shape.wanted, movable, self._limits)
            told = describe_mix_plan(planner, snapshot, shape, outcome, view.obstacles)
            moves = len(told.get("moves", ())) or 1
            found.append((outcome.plan is not None, shape.part * shape.shape.demand / moves, told))
        best = max(found, key=lambda each: each[:2], default=None)
        return [] if best is None else [best[2]]

    async def _mark(self, view: DefragView, seconds: float) -> None:
        """Write marks on the pods that wait, where they differ from what stands there."""
        for pending in sort_pending(view, self._limits):
            facts = view.reading.pods[pending.query.pod.uid]
            mark = find_mark(facts, pending.moves, time.time(), seconds)
            if mark is not None and await write_mark(self._client, mark):
                word = "marked" if pending.moves else "not marked any more"
                if not self._wanted.quiet:
                    echo(f"{pending.name} {word}")

    async def _carry_out(self, pod: Pod, plan: DefragPlan) -> dict[str, Any]:
        done: list[str] = []

        def say(text: str) -> None:
            done.append(text)
            if not self._wanted.quiet:
                echo(text)

        edges = PlanEdges(self._client, self._look, self._keep, say, self._wanted.seconds)
        try:
            node = await PlanRunner(edges, pod, plan).run()
        except PlanStoppedError as error:
            if not self._wanted.quiet:
                echo(f"stopped: {error}", err=True)
            return {"done": done, "stopped": str(error)}
        say(f"{pod.namespace}/{pod.name} is on node {node}")
        return {"done": done, "node": node}

    async def _keep(self, pod: Pod, node: str, victims: Sequence[str]) -> None:
        body = {"Pod": pod.uid, "Node": node, "Victims": list(victims)}
        await ask_running(self._client, self._target, "/keep-room", body)
