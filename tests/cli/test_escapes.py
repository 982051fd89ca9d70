"""Whatever others have written, no command hands a terminal what it would obey."""

import asyncio
import io
import json
import logging

import click
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

import builders
from fakes.cluster import FakeState, FakeWriter
from slicewise.cli.audit import show_audit
from slicewise.cli.main import LazyGroup
from slicewise.cli.render import logs
from slicewise.cli.render.console import EscapingConsole
from slicewise.cli.render.terminal import echo, echo_json, finish
from slicewise.cli.top import write_table
from slicewise.cluster import Ledger, NodeSeen
from slicewise.diagnose.findings import Finding, FindingSeverity
from slicewise.diagnose.findings_text import write_findings
from slicewise.dialects import DEFAULT
from slicewise.explain.answer_text import describe
from slicewise.extender.handlers import Extender
from slicewise.model.styled_text import BAD, escape, escape_cell, escape_json, paint
from slicewise.state.usage.usage_text import write_plain
from slicewise.state.usage.usage_view import view_node

NASTY = (
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[1;1H",
    "\x9b31m",
    "\x08\x08\x7f",
    "\r\nError: ",
    "a\u202eb\u2066c",
    "\u200b\ufeff\u2028",
    "[red]x[/red]",
    "\ud800",
    "\0" * 20,
)
words = st.one_of(st.sampled_from(NASTY), st.text(max_size=30))


def is_safe(text, keep="\n\t"):
    return all(each.isprintable() or each in keep for each in text)


def printed(work):
    """What this prints, where colours are taken out and where they are not."""
    command = click.Command("x", callback=work)
    plain = CliRunner().invoke(command, catch_exceptions=False).output
    coloured = CliRunner().invoke(command, color=True, catch_exceptions=False).output
    for code in ("0", "1", "31", "32", "33", "90", "31;1", "32;1", "33;1"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    return plain, coloured


@given(words)
def test_escaped_text_is_printable_and_stays_as_it_is(text):
    assert is_safe(escape(text))
    assert is_safe(escape_cell(text), keep="")
    assert escape(escape(text)) == escape(text)
    assert escape(text) == text if is_safe(text) else True


@given(words, words)
def test_colours_are_ours_alone(text, more):
    for output in printed(lambda: echo(f"{more}{paint(text, BAD, bold=True)}{text}")):
        assert is_safe(output)
        assert output.count("\n") == 1


@given(st.dictionaries(words.filter(lambda word: "\ud800" not in word), words, max_size=3))
def test_json_stays_json_and_is_printable(value):
    value = json.loads(json.dumps(value))
    plain, _ = printed(lambda: echo_json(value))

    assert is_safe(plain)
    assert json.loads(plain) == value
    assert is_safe(escape_json(json.dumps(value, ensure_ascii=False)))


MARKS = (
    "slicewise.io/policy", "slicewise.io/gpu-models", "slicewise.io/allocation",
    "nvidia.com/predicate-gpu-idx-0", "tencent.com/predicate-node", "ALIYUN_COM_GPU_MEM_IDX",
    "elasticgpu.io/container-c0", "nvidia.com/gpu.model",
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(MARKS), words))
def test_why_is_safe_whatever_annotations_say(written):
    limits = {"slicewise.io/cores": 50, "slicewise.io/memory": 50000}
    pod = builders.pod(limits=limits, annotations=written)
    extender = Extender(FakeState(builders.node("a", 1)), FakeWriter(pod))

    answer = asyncio.run(extender.explain(b"", {"pod": "default/p0"}))
    text = answer.body.decode()
    if answer.status == 200:
        lines = describe(json.loads(text))
        text = "".join(printed(lambda: [echo(line) for line in lines]))
    else:
        text = escape(text)

    assert is_safe(text)


@given(words, words)
def test_tables_are_safe_whatever_they_show(text, more):
    finding = {"kind": text, "subject": more, "what": text, "remedy": more}
    answer = {"node": text, "verdict": "findings", "findings": [finding], "gaps": [more]}
    for terminal in (True, False):
        console = EscapingConsole(file=io.StringIO(), force_terminal=terminal, color_system=None)
        show_audit(answer, console)
        table = Table(title=escape(text))
        table.add_column(Text(more))
        table.add_row(Text(text))
        console.print(table)
        assert is_safe(console.file.getvalue())
    findings = [Finding(FindingSeverity.PROBLEM, text, more, text, more)]
    lines = write_findings(findings)
    assert all(map(is_safe, printed(lambda: [echo(line) for line in lines])))


@given(words)
def test_top_is_safe_whatever_a_gpu_is_called(model):
    node = builders.node("a", 2, model=model)
    ledger = Ledger(DEFAULT)
    ledger.apply(NodeSeen(node))
    views = [view_node(state, ledger, None) for state in ledger.snapshot()]
    plain = write_plain(views)
    console = EscapingConsole(file=io.StringIO(), width=300)
    console.print(write_table(views, idle=True))

    assert is_safe(finish(plain))
    assert plain.count("\n") == 4
    assert is_safe(console.file.getvalue())


@given(words, words)
def test_logs_are_safe_whatever_they_quote(text, more):
    fields = {"event": text, "pod": more}
    line = logs._render(None, "info", dict(fields))

    assert is_safe(line, keep="")
    assert json.loads(line) == fields
    assert is_safe(logs._render_text(None, "info", dict(fields)))
    record = logging.LogRecord("x", logging.WARNING, "x", 1, text, None, None)
    assert is_safe(logs._EscapingFormatter().format(record))


def test_failure_of_a_command_is_safe_to_read(capsys):
    error = ValueError("annotation \x1b[2J\u202e")
    logs._show_failure(ValueError, error, None)

    assert capsys.readouterr().err == "ValueError: annotation \\x1b[2J\\u202e\n"


@given(words)
def test_errors_are_safe_whatever_they_quote(text):
    group = LazyGroup("x", commands={})

    @group.command("fail")
    def fail():
        raise click.ClickException(text)

    result = CliRunner().invoke(group, ["fail"])

    assert result.exit_code == 1
    assert is_safe(result.output)
