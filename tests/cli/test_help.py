"""Every option of every command has help that ends as a sentence."""

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from slicewise.cli import main as product


def walk(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            assert inner is not None
            yield from walk(inner, f"{name} {each}")


COMMANDS = dict(walk(product.main, "slicewise"))


@pytest.mark.parametrize("name", COMMANDS)
def test_command_says_what_it_does(name):
    assert COMMANDS[name].help or COMMANDS[name].callback.__doc__


def is_sentence(text: str | None) -> bool:
    """Whether a newcomer is told something, apart from the default and the variable."""
    told = re.sub(r"(\s*\[[^\]]*\])+$", "", text or "").strip()
    return len(told.split()) > 1 and told.endswith(".")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help_that_ends_as_a_sentence(name):
    options = [each for each in COMMANDS[name].params if isinstance(each, click.Option)]

    assert [
        f"{each.opts[-1]}: {each.help!r}"
        for each in options
        if not each.hidden and not is_sentence(each.help)
    ] == []


@pytest.mark.parametrize(
    "name", [each for each in COMMANDS if isinstance(COMMANDS[each], click.Group)]
)
def test_no_line_of_a_list_of_commands_is_cut(name):
    listed = CliRunner().invoke(COMMANDS[name], ["--help"]).output.partition("Commands:")[2]

    assert listed.strip()
    assert [line for line in listed.splitlines() if line.endswith("...")] == []
