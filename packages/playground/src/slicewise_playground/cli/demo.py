"""`slicewise demo`: every system's examples on simulated nodes, placed by the real extender."""

import contextlib
import logging
import signal
import tempfile
import threading
from pathlib import Path

import click

from slicewise.cli.render.logs import configure_logs
from slicewise.model import SlicewiseError
from slicewise_playground.demo.demo_cluster import (
    UNFIT,
    ExampleManifest,
    build_nodes,
    find_examples,
    read_manifests,
)
from slicewise_playground.demo.demo_output import say
from slicewise_playground.demo.demo_page import PORT
from slicewise_playground.demo.run import report, run_demo


@click.command(short_help="Place examples of five systems on simulated nodes.")
@click.option(
    "--once",
    is_flag=True,
    help="Place the examples, check them and exit, with 0 if all got what they asked for.",
)
@click.option(
    "--examples",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Folder with manifests in <system>/*.yaml to place instead of the built-in examples.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write the kubeconfig; by default a temporary file.",
)
@click.option(
    "--patience",
    default=60.0,
    show_default=True,
    help="Seconds to wait for the pods to be placed.",
)
@click.option("--verbose", is_flag=True, help="Show the log of the extender as well.")
def demo(
    once: bool, examples: Path | None, kubeconfig: Path | None, patience: float, verbose: bool
) -> None:
    """Place the examples of five systems on simulated GPU nodes, and show who got what."""
    configure_logs(logging.INFO if verbose else logging.CRITICAL)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stop.set())
    try:
        manifests = read_manifests(examples or find_examples())
    except SlicewiseError as error:
        raise click.ClickException(str(error)) from error
    with (
        tempfile.TemporaryDirectory(prefix="slicewise-demo-") as folder,
        run_demo(0 if once else PORT) as run,
        contextlib.ExitStack() as stack,
    ):
        path = run.cluster.write_kubeconfig(kubeconfig or Path(folder) / "kubeconfig")
        say(f"Page {run.page}   # every GPU, live; the usage of most pods is simulated")
        say(f"API server {run.cluster.url}, extender {run.url}, {len(build_nodes())} nodes")
        # Whether the last one fits depends on where the others are, so it comes after them.
        placed = True
        for some in (manifests, [ExampleManifest("slicewise", UNFIT)]):
            try:
                run.apply(some)
            except SlicewiseError as error:
                raise click.ClickException(str(error)) from error
            placed = placed and run.wait(patience, stop)
        uses = run.start_programs(stack, Path(folder), stop)
        kept = report(run, placed, uses)
        if once:
            raise SystemExit(0 if kept else 1)
        say(f"export KUBECONFIG={path}   # then kubectl get pods -A; Ctrl-C ends the demo")
        say(f"slicewise why --url {run.url} {UNFIT['metadata']['name']}")
        say("slicewise top   # also what-if -f FILE, doctor, cordon NODE GPU, inspect-gpushare -d")
        say(f"Open {run.page}")
        stop.wait()
