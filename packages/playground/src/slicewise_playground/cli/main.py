"""`slicewise-playground`: the demo and the embedded API; `slicewise` offers the same commands."""

import click

from slicewise.cli.render.logs import configure_plain_logs
from slicewise_playground import __version__
from slicewise_playground.cli.demo import demo
from slicewise_playground.cli.playground import playground


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="slicewise-playground")
def main() -> None:
    """A Kubernetes API with simulated GPU nodes, and the demo of Slicewise."""
    configure_plain_logs()


main.add_command(demo)
main.add_command(playground)
