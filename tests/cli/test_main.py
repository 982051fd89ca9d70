import click
import pytest
from click.testing import CliRunner

from slicewise import __version__
from slicewise.cli.main import main


def test_version_names_the_program():
    result = CliRunner().invoke(main, ["--version"])

    assert result.output == f"slicewise, version {__version__}\n"


def list_options():
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                yield pytest.param(option, id=f"{name}{option.opts[0]}")


@pytest.mark.parametrize("option", list(list_options()))
def test_every_flag_has_help_that_says_more_than_its_default(option):
    assert option.help, option.opts
    assert not option.help.startswith("[")
