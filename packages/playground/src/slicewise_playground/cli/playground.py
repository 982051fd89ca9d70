"""`slicewise playground`: the embedded Kubernetes API on its own, for a person with kubectl."""

import signal
import tempfile
import threading
from pathlib import Path

import click

from slicewise.cli.render.terminal import echo
from slicewise.httpd import ServerSettings
from slicewise_playground.cluster import Playground
from slicewise_playground.controlplane.controllers import WorkloadControllers
from slicewise_playground.kubelet.simulated_node import SimulatedNode
from slicewise_playground.kubelet.simulated_nodes import SimulatedNodes

GPU_NODE = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}


@click.command(short_help="Serve an embedded Kubernetes API.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, help="Port to listen on; 0 takes a free one.")
@click.option("--nodes", default=3, show_default=True, help="How many simulated nodes to register.")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write the kubeconfig; by default a temporary file.",
)
def playground(host: str, port: int, nodes: int, kubeconfig: Path | None) -> None:
    """Serve an embedded Kubernetes API with simulated nodes until Ctrl-C."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stop.set())
    with tempfile.TemporaryDirectory(prefix="slicewise-playground-") as folder:
        try:
            cluster = Playground(
                settings=ServerSettings(host=host, port=port, request_seconds=None)
            )
        except OSError as error:
            raise click.ClickException(str(error)) from error
        rows = [SimulatedNode(f"node-{number}", GPU_NODE) for number in range(nodes)]
        cluster.run(SimulatedNodes(cluster.api, rows).run)
        cluster.run(WorkloadControllers(cluster.api).run)
        with cluster:
            path = cluster.write_kubeconfig(kubeconfig or Path(folder) / "kubeconfig")
            echo(f"serving {cluster.url} with {nodes} simulated nodes; Ctrl-C ends it")
            echo(f"export KUBECONFIG={path}")
            stop.wait()
