"""How commands reach the API server: kubectl's files and flags, and errors of one line."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from slicewise import __version__
from slicewise.cli.render.terminal import echo
from slicewise.kube.client import Client, RequestTimeouts
from slicewise.kube.kubeconfig import find_access
from slicewise.model import SlicewiseError
from slicewise.model.backoff import Backoff

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
FILE: Final = click.Path(dir_okay=False, path_type=Path)
# A person waits for the answer, so few attempts are made.
_TIMING: Final = RequestTimeouts(attempts=3, backoff=Backoff(0.1, 1.0))


@dataclass(frozen=True, slots=True)
class ClusterFlags:
    """Which cluster a command is about."""

    kubeconfig: Path | None = None
    context: str | None = None


class CommandFailure(click.ClickException):
    """An error of a command that otherwise succeeds; exits with 1."""


class CannotTell(click.ClickException):
    """An error of a command that answers no with 1; exits with 2."""

    exit_code = 2


def cluster_options(command: F) -> F:
    """The flags that say which cluster, as kubectl spells them."""
    command = click.option(
        "--context", help="Context of the kubeconfig to use [default: its current one]."
    )(command)
    flag = click.option(
        "--kubeconfig",
        type=FILE,
        help="Kubeconfig of the cluster [default: KUBECONFIG, the pod's own, ~/.kube/config].",
    )
    return flag(command)


def run_connected(
    cluster: ClusterFlags,
    work: Callable[[Client], Awaitable[T]],
    error: type[click.ClickException] = CommandFailure,
) -> T:
    """What the work returns, given a client; errors become one line and an exit code."""

    async def run() -> T:
        access = find_access(cluster.kubeconfig, cluster.context)
        async with Client(access, timing=_TIMING, agent=f"kubectl-slicewise/{__version__}") as it:
            return await work(it)

    try:
        return asyncio.run(run())
    except SlicewiseError as cause:
        raise error(str(cause)) from cause


def warn(text: str) -> None:
    """Tell the person something beside the answer."""
    echo(text, err=True)
