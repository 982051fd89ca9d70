"""`slicewise defrag [POD]`: prints a plan of moves, and carries it out when told to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from slicewise.cli.cluster_access import (
    CannotTell,
    ClusterFlags,
    cluster_options,
    run_connected,
)
from slicewise.cli.extender_target import read_target, target_options
from slicewise.cli.render.terminal import echo, echo_json
from slicewise.explain.defrag_plans import describe_plan
from slicewise.explain.defrag_text import describe_plans
from slicewise.extender.client.calls import ExtenderTarget, ask_running, open_defrag
from slicewise.kube.client import Client
from slicewise.model import Pod
from slicewise.placement.defrag import DefragPlan, SearchLimits
from slicewise.state.defrag.defrag_view import DefragReader
from slicewise.state.defrag.plan_runner import PlanEdges, PlanRunner, PlanStoppedError
from slicewise.state.defrag.plan_search import (
    Plans,
    find_waiting,
    mark_waiting,
    plan_mix,
    plan_waiting,
)


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


@click.command(short_help="Plan moves of pods so that a waiting one fits.")
@click.argument("pod", required=False)
@click.option("-n", "--namespace", help="Namespace of the pod [default: the context's].")
@click.option("--max-moves", type=click.IntRange(1, 32), default=8, show_default=True,
              help="Number of pods to move at most for one that waits.")  # fmt: skip
@click.option("--evict", is_flag=True, help="Carry the plan for POD out: evict pod by pod, each "
              "when the one before runs again, and keep the room for POD. Needs --service or "
              "--url, because only the extender that the scheduler asks can keep it.")  # fmt: skip
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
    """Say which pods to move so that POD fits.

    Without POD, plan for each pod that waits; where none waits, for more of the usual pods.

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
        raise click.UsageError("--mark looks at every pod that waits: leave POD out")
    if wanted.evict and pod is None:
        raise click.UsageError("--evict carries out the plan of one pod: name it")
    if wanted.evict and not (target.url or target.service):
        raise click.UsageError("--evict: pass --service or --url, by which room is kept")

    async def work(client: Client) -> Plans:
        async with open_defrag(client, target) as look:
            return await _Command(client, target, wanted, look).run()

    plans = run_connected(ClusterFlags(**flags), work, CannotTell)
    if wanted.quiet:
        echo_json(plans)
    raise SystemExit(0 if all(plan["fits"] and not plan.get("stopped") for plan in plans) else 1)


def _read_marks(flags: dict[str, Any]) -> float | None:
    seconds: float = flags.pop("mark_seconds")
    return seconds if flags.pop("mark") else None


class _Command:
    def __init__(
        self, client: Client, target: ExtenderTarget, wanted: DefragFlags, look: DefragReader
    ) -> None:
        self._client = client
        self._target = target
        self._wanted = wanted
        self._look = look
        self._limits = SearchLimits(moves=wanted.most)

    async def run(self) -> Plans:
        view = await self._look()
        if self._wanted.mark_seconds is not None:
            seconds = self._wanted.mark_seconds
            async for line in mark_waiting(self._client, view, self._limits, seconds):
                self._say(line)
        if self._wanted.pod is None:
            plans = plan_waiting(view, self._limits) or plan_mix(view, self._limits)
            self._show(plans)
            return plans
        space, _, name = self._wanted.pod.rpartition("/")
        home = space or self._wanted.namespace or self._client.access.namespace
        pod = find_waiting(view, home, name)
        if pod is None:
            raise CannotTell(f"pod '{home}/{name}': no such pod asks for GPUs and has no node")
        query = view.ask(pod)
        outcome = view.plan(query, self._limits)
        told = describe_plan(query, outcome, view.obstacles)
        self._show([told])
        if self._wanted.evict and outcome.plan is not None and outcome.plan.moves:
            told |= await self._carry_out(pod, outcome.plan)
        return [told]

    def _show(self, plans: Plans) -> None:
        for line in describe_plans(plans):
            self._say(line)

    def _say(self, line: str, *, err: bool = False) -> None:
        if not self._wanted.quiet:
            echo(line, err=err)

    async def _carry_out(self, pod: Pod, plan: DefragPlan) -> dict[str, Any]:
        done: list[str] = []

        def say(text: str) -> None:
            done.append(text)
            self._say(text)

        edges = PlanEdges(self._client, self._look, self._keep, say, self._wanted.seconds)
        try:
            node = await PlanRunner(edges, pod, plan).run()
        except PlanStoppedError as error:
            self._say(f"stopped: {error}", err=True)
            return {"done": done, "stopped": str(error)}
        say(f"{pod.namespace}/{pod.name} is on node {node}")
        return {"done": done, "node": node}

    async def _keep(self, pod: Pod, node: str, victims: Sequence[str]) -> None:
        body = {"Pod": pod.uid, "Node": node, "Victims": list(victims)}
        await ask_running(self._client, self._target, "/keep-room", body)
