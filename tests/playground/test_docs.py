from pathlib import Path

from conformance.server import Client, Server
from slicewise_playground.objects.resources import RESOURCES

PAGE = (Path(__file__).parents[2] / "docs" / "playground.md").read_text()


def test_example_of_the_page_runs(capsys):
    code = PAGE.partition("```python\n")[2].partition("```")[0]
    scope = {}

    exec(compile(code, "docs/playground.md", "exec"), scope)

    assert capsys.readouterr().out.startswith("http://127.0.0.1:")
    assert scope["playground"].get("pods", "p")["spec"]["nodeName"] == "a1"


def test_page_names_every_resource():
    missing = [row.plural for row in RESOURCES if row.plural not in PAGE]

    assert missing == []


def test_pages_of_faults_name_every_route(playground, tmp_path):
    client = Client(Server("embedded", playground.url, tmp_path))
    routes = ("drop-watches", "expire", "delay-events")

    answers = [client.post(f"/faults/{route}", {}).status for route in routes]
    client.close()

    assert answers == [200, 200, 200]
    assert all(f"POST /faults/{route}" in PAGE for route in routes)
