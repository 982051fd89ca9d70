import json
from collections.abc import Iterator
from io import StringIO

import pytest
from click.testing import CliRunner

from slicewise.cli.audit import show_audit
from slicewise.cli.main import main
from slicewise.cli.render.console import EscapingConsole
from slicewise.diagnose.findings_text import write_audit_lines
from slicewise.httpd import (
    Answer,
    HttpRequest,
    HttpResponse,
    ServerSettings,
    json_response,
)
from slicewise_playground.threaded_server import ThreadedServer

CLEAN = {"node": "n0", "verdict": "clean", "findings": [], "gaps": []}
FOUND = {
    "node": "n0",
    "verdict": "findings",
    "findings": [
        {
            "kind": "Stray",
            "subject": "pid 7 on gpu 0 (GPU-0)",
            "what": "[bold]evil\x1b[2J\tname[/] runs outside every pod",
            "remedy": "end the process",
        }
    ],
    "gaps": ["the kubelet: no such socket"],
}
UNKNOWN = {"node": "n0", "verdict": "unknown", "findings": [], "gaps": ["the driver: silent"]}


class Agent:
    """A server whose audit page says what the test wants."""

    def __init__(self) -> None:
        self.answer: Answer = json_response(CLEAN)

    async def handle(self, request: HttpRequest) -> Answer:
        if request.path == "/audit":
            return self.answer
        return HttpResponse(404, b"no such path\n", content_type="text/plain")


@pytest.fixture
def agent() -> Iterator[tuple[Agent, str]]:
    found = Agent()
    with ThreadedServer(found.handle, ServerSettings(port=0)) as server:
        yield found, server.url


def run(url: str, *more: str):
    return CliRunner().invoke(main, ["audit", "--url", url, *more])


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        pytest.param(CLEAN, 0, "n0: every container holds what it was allocated", id="clean"),
        pytest.param(FOUND, 1, "n0: 1 finding", id="findings"),
        pytest.param(UNKNOWN, 2, "n0: cannot tell", id="unknown"),
    ],
)
def test_the_exit_code_tells_the_verdict(agent, answer, code, words):
    served, url = agent
    served.answer = json_response(answer)
    result = run(url)

    assert result.exit_code == code
    assert words in result.output


def test_json_is_the_answer_as_it_came(agent):
    served, url = agent
    served.answer = json_response(FOUND)
    result = run(url, "-o", "json")

    assert json.loads(result.output) == FOUND
    assert result.exit_code == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(HttpResponse(500, b"internal error\n"), id="error"),
        pytest.param(HttpResponse(200, b"<html>"), id="no-json"),
        pytest.param(json_response({"usage": {}}), id="another-page"),
        pytest.param(json_response([]), id="a-list"),
    ],
)
def test_an_answer_that_is_no_audit_cannot_tell(agent, answer):
    served, url = agent
    served.answer = answer
    result = run(url)

    assert result.exit_code == 2
    assert "--url" in result.output


def test_without_an_agent_nobody_can_tell():
    result = run("http://127.0.0.1:9")

    assert result.exit_code == 2
    assert "cannot ask http://127.0.0.1:9/audit" in result.output


def test_a_pipe_gets_one_line_per_finding_without_control_characters():
    lines = write_audit_lines(FOUND)

    assert lines[0] == "KIND\tSUBJECT\tWHAT\tREMEDY"
    assert lines[1].split("\t")[2] == "[bold]evil\\x1b[2J\\tname[/] runs outside every pod"
    assert lines[2] == "not answered: the kubelet: no such socket"


def test_a_terminal_gets_a_table_that_takes_no_markup_from_strangers():
    written = StringIO()
    show_audit(FOUND, EscapingConsole(force_terminal=True, width=160, file=written))
    text = written.getvalue()

    assert "[bold]evil\\x1b[2J\\tname[/]" in text
    assert "what to do" in text
