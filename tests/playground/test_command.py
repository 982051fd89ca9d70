import http.client
import json
import os
import signal
import subprocess
import sys
from urllib.parse import urlsplit

import yaml
from click.testing import CliRunner

from slicewise.cli.main import main


def test_playground_serves_its_nodes_until_it_is_told_to_stop(tmp_path):
    path = tmp_path / "folder" / "kubeconfig"
    command = [sys.executable, "-c", "from slicewise.cli.main import main; main()"]
    words = ["playground", "--nodes", "2", "--kubeconfig", str(path)]
    with subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True) as process:
        serving, export = process.stdout.readline(), process.stdout.readline()
        url = yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"]
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
        connection.request("GET", "/api/v1/nodes")
        nodes = json.loads(connection.getresponse().read())["items"]
        connection.close()
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=10)

    assert serving == f"serving {url} with 2 simulated nodes; Ctrl-C ends it\n"
    assert export == f"export KUBECONFIG={path}\n"
    assert [node["metadata"]["name"] for node in nodes] == ["node-0", "node-1"]
    assert code == 0
    assert os.stat(path).st_mode & 0o077 == 0


def test_help_names_the_options():
    text = CliRunner().invoke(main, ["playground", "--help"]).output

    for option in ("--port", "--nodes", "--kubeconfig"):
        assert option in text
