import re
from pathlib import Path

from nodeagent import scenes
from nodeagent.test_pages import FakeMeter, get
from slicewise.diagnose.audit_report import AuditKind
from slicewise.nodeagent.pages import AgentPages

PAGE = (Path(__file__).parents[2] / "docs" / "agent.md").read_text()


def test_every_metric_is_described_and_none_that_is_not_served():
    meter = FakeMeter(reading=scenes.reading({}))
    text = get(AgentPages(meter), "/metrics").body.decode()
    served = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    section = PAGE.partition("## Usage and metrics")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    described = {
        name
        for row in rows
        for name in re.findall(r"`((?:slicewise|container|gpu|pod)_\w+)`", row.split("|")[1])
    }

    assert described == served


def test_every_kind_of_finding_is_described():
    section = PAGE.partition("## Audit")[2].partition("\n## ")[0]

    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [
        kind.value for kind in AuditKind
    ]
