"""Runs every benchmark whose name starts with the prefix given, and prints what it measured."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from bench.agent import measure_calls, measure_idle, measure_memory, measure_prestart
from bench.bindcpu import measure_bind_cpu
from bench.bindrate import measure_bind_rate, measure_burst
from bench.decisions import measure_cold, measure_decisions, measure_tables
from bench.defrag import measure_plans
from bench.dra_bindrate import measure_claim_bind_rate
from bench.dra_openb import measure_openb_claims
from bench.dra_start import measure_start
from bench.events import measure_events
from bench.extender import measure_filter, measure_writes
from bench.fanout import measure_fanout
from bench.hostile import measure_hostile
from bench.limiter import measure_limiter_calls, measure_limiter_load
from bench.limiter_deaths import measure_limiter_deaths
from bench.limiter_pace import measure_limiter_pace, measure_limiter_soft
from bench.limiter_sim import measure_limiter_sim
from bench.limitfeed import measure_limiter_feed
from bench.load import measure_load
from bench.openb import measure_replay
from bench.page import measure_first_paint
from bench.spiteful import measure_worst
from bench.starts import measure_checks
from bench.trust import measure_signing, measure_verifying
from slicewise.cli.render.logs import configure_plain_logs

Measures = Iterator[tuple[str, float]]

BENCHES: Final[Mapping[str, Callable[[], Measures]]] = {
    **{
        f"decision.{policy}.{nodes}": partial(measure_decisions, policy, nodes, count)
        for nodes, count in ((5000, 2000), (50000, 300))
        for policy in ("binpack", "fgd", "default")
    },
    "decision.cold.5000": partial(measure_cold, 5000, 200),
    "decision.worst.5000": measure_worst,
    "defrag.plan.1000": partial(measure_plans, 1000),
    "ledger.event": measure_events,
    "tables": measure_tables,
    "extender.load": measure_load,
    "extender.hostile": measure_hostile,
    "limiter.load": measure_limiter_load,
    "limiter.calls": measure_limiter_calls,
    "limiter.sim": measure_limiter_sim,
    "limiter.pace": measure_limiter_pace,
    "limiter.pace.soft": measure_limiter_soft,
    "limiter.feed": measure_limiter_feed,
    "limiter.deaths": measure_limiter_deaths,
    "openb.replay.fgd": measure_replay,
    "extender.filter.names.5000": partial(measure_filter, "names", 1000, 50),
    "extender.filter.nodes.5000": partial(measure_filter, "nodes", 20, 2),
    "extender.writes_per_pod": measure_writes,
    "extender.bind_cpu": measure_bind_cpu,
    "extender.signing": measure_signing,
    "agent.verifying": measure_verifying,
    "agent.prestart.100": measure_prestart,
    "agent.checks.100": measure_checks,
    "agent.memory": measure_memory,
    "agent.idle": measure_idle,
    "agent.api_calls_per_pod": measure_calls,
    "page.first_paint.5000": partial(measure_first_paint, 5000),
    "cluster.bind_rate": measure_bind_rate,
    "cluster.burst.5000": measure_burst,
    "dra.openb": measure_openb_claims,
    "dra.start": measure_start,
    "dra.bind_rate": measure_claim_bind_rate,
    "api.fanout.5000": measure_fanout,
}


def main(prefix: str = "") -> None:
    """Run the benchmarks and print one line per number."""
    chosen = [name for name in BENCHES if name.startswith(prefix)]
    if not chosen:
        sys.exit(f"no benchmark starts with {prefix!r}: expected one of {', '.join(BENCHES)}")
    configure_plain_logs()
    for name in chosen:
        for metric, value in BENCHES[name]():
            line = {"bench": name, "metric": metric, "value": round(value, 4)}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:2])
