"""The `slicewise` command: one file per verb, gathered here."""

import click

from slicewise import __version__
from slicewise.cli.compare import compare
from slicewise.cli.demo import demo
from slicewise.cli.extender import extender
from slicewise.cli.playground import playground
from slicewise.cli.plugin import VERBS
from slicewise.cli.scheduler_config import scheduler_config
from slicewise.cli.simulate import simulate


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="slicewise")
def main() -> None:
    """Share NVIDIA GPUs between Kubernetes pods."""


main.add_command(compare)
main.add_command(demo)
main.add_command(extender)
main.add_command(simulate)
main.add_command(playground)
main.add_command(scheduler_config)
for verb in VERBS:
    main.add_command(verb)
