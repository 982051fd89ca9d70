import asyncio
import json
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

import builders
from metricsapi.scene import Scene
from reports.listener import Listener, reporting
from reports.values import gpu, node, pod
from slicewise.cli.agent import _read_report
from slicewise.cli.metrics_api import metrics_api, read_choices, read_settings
from slicewise.cli.options import read_service_name
from slicewise.dialects import ALLOCATION, GPUS
from slicewise.kube.errors import RefusedError
from slicewise.kube.secrets import Secret
from slicewise.metricsapi.report_overlay import ReportOverlay, follow_reports
from slicewise.model import Container, NodeNotice, Pod
from slicewise.nodeagent.usage.reporting import SecretCredentials
from slicewise.reports import Reporter, ReportError

NOTHING = dict.fromkeys(
    (
        "bind_address", "secure_port", "tls_auto", "tls_ca", "tls_cert", "tls_key",
        "enable_scheduler", "parallelism", "config", "kubeconfig", "name", "namespace",
    )
)  # fmt: skip
FLAGS = {
    **NOTHING,
    "policy": "default",
    "silence_seconds": 3.3,
    "overlap_seconds": 30.0,
    "agents_need_node": False,
    "admit_old_agents": False,
}


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.delenv("MetadataName", raising=False)
    monkeypatch.delenv("MetadataNamespace", raising=False)
    return tmp_path


def choose(**flags):
    return read_choices({**NOTHING, **flags})


def test_defaults_are_the_originals():
    settings = read_settings(FLAGS, choose())

    assert (settings.service.listen.host, settings.service.listen.port) == ("0.0.0.0", 8080)
    assert settings.service.listen.tls is None
    assert settings.scheduler
    assert (settings.service.name, settings.service.namespace) == (
        "nvidia-gpu-scheduler",
        "kube-system",
    )


def test_file_is_read_and_flags_win(home):
    document = {
        "secure-port": 9443,
        "tls-autos": False,
        "enable-scheduler": False,
        "tls-config": {"tls-ca-file": "/ca.pem"},
        "scheduler": {"parallelism": 3},
        "unknown": 1,
    }
    (home / ".metrics-podresource.yaml").write_text(yaml.safe_dump(document))

    choices = choose(secure_port=8443)

    assert choices["secure-port"] == 8443
    assert choices["tls-auto"] is False
    assert choices["enable-scheduler"] is False
    assert choices["tls-config.tls-ca-file"] == "/ca.pem"
    assert choices["scheduler.parallelism"] == 3


@pytest.mark.parametrize("text", ["- a", "secure-port: high", "a: ["])
def test_file_that_makes_no_sense_is_refused(home, text):
    path = home / "config.yaml"
    path.write_text(text)

    with pytest.raises(click.BadParameter):
        choose(config=path)


def test_written_configuration_is_read_back(home, monkeypatch):
    # Logs of a command belong to its process, which here is the tests' own.
    monkeypatch.setattr("slicewise.cli.metrics_api.configure_logs", lambda _: None)
    path = home / "written.yaml"
    result = CliRunner().invoke(
        metrics_api, ["-p", "9000", "--tls-auto=false", "--write-config-to", str(path)]
    )

    assert result.exit_code == 0, result.output
    assert choose(config=path) == choose(secure_port=9000, tls_auto=False)
    assert "tls-auto" in yaml.safe_load(path.read_text())


def test_files_are_needed_where_certificates_are_not_made():
    with pytest.raises(click.BadParameter, match="expected a PEM file"):
        read_settings(FLAGS, choose(tls_auto=False))


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, ("nvidia-gpu-scheduler", "kube-system")),
        ({"MetadataName": "gpu-0", "MetadataNamespace": "ops"}, ("gpu", "ops")),
        ({"MetadataName": "my-release-x7k2p"}, ("my-release", "kube-system")),
    ],
)
def test_service_is_named_after_the_pod(environment, place):
    assert read_service_name(environment) == place


def test_agent_of_the_originals_chart_reports_to_the_server_beside_it(monkeypatch):
    flags = {"report_to": None, "report_ca": None, "report_token": None}
    assert _read_report(flags) is None
    monkeypatch.setenv("MetadataName", "gpu-x7k2p")
    monkeypatch.setenv("MetadataNamespace", "ops")

    report = _read_report(flags)

    assert report.address == "https://gpu.ops.svc"
    assert report.secret == ("ops", "gpu")


class Vault:
    def __init__(self, found):
        self.found = found

    async def read(self):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (None, "no ca-cert.pem"),
        (Secret({}), "no ca-cert.pem"),
        (RefusedError(403, "Forbidden", "no"), "pass --report-ca"),
        (Secret({"ca-cert.pem": b"nonsense"}), "authorities cannot be read"),
    ],
)
def test_agent_says_why_it_cannot_know_the_server(found, words, tmp_path):
    credentials = SecretCredentials(Vault(found), tmp_path / "token")

    with pytest.raises(ReportError, match=words):
        asyncio.run(credentials.tls())


def test_agent_shows_the_token_in_its_file(tmp_path):
    (tmp_path / "token").write_text("secret\n")

    async def scene():
        async with Listener() as listener:
            credentials = SecretCredentials(Vault(None), tmp_path / "token")
            reporter = Reporter(listener.url, credentials)
            reporter.update(node())
            async with reporting(reporter):
                await asyncio.wait_for(reporter.connected.wait(), 20)
            return listener.requests[0].headers["authorization"]

    assert asyncio.run(scene()) == "Bearer secret"


def notice(count=2, **facts):
    return NodeNotice("n1", capacity={"nvidia.com/gpu": str(count)}, **facts)


def bound(name="a", count=1, **facts):
    main = Container("main", limits={"nvidia.com/gpu": str(count)})
    return Pod(f"uid-{name}", "ml", name, (main,), node="n1", **facts)


def witness(*pods, gpus=None):
    scene = Scene()
    scene.tell(node(gpus=gpus or (gpu("GPU-a", index=0), gpu("GPU-b", index=1)), pods=pods))
    return scene, ReportOverlay(scene.registry)


def test_node_that_publishes_a_mere_count_gets_the_gpus_its_agent_reports():
    _, told = witness()

    gpus = json.loads(told.complete_node(notice()).annotations[GPUS])["gpus"]

    assert [(gpu["uuid"], gpu["model"], gpu["health"]) for gpu in gpus] == [
        ("GPU-a", "Tesla T4", True),
        ("GPU-b", "Tesla T4", True),
    ]


def test_gpus_of_a_silent_node_are_not_well():
    scene, told = witness()
    scene.seconds = 10.0
    scene.registry.sweep()

    gpus = json.loads(told.complete_node(notice()).annotations[GPUS])["gpus"]

    assert [gpu["health"] for gpu in gpus] == [False, False]


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(notice(annotations={GPUS: "x"}), id="own-inventory"),
        pytest.param(notice(count=8), id="shared-by-the-plugin"),
        pytest.param(NodeNotice("n1"), id="no-nvidia-plugin"),
        pytest.param(NodeNotice("n9", capacity={"nvidia.com/gpu": "2"}), id="no-agent"),
    ],
)
def test_other_nodes_are_left_as_they_are(shown):
    _, told = witness()

    assert told.complete_node(shown) is shown


def test_pod_gets_the_record_of_what_the_kubelet_gave_it():
    _, told = witness(pod("a", gpus=["GPU-b"]))

    record = json.loads(told.complete_pod(bound()).annotations[ALLOCATION])

    assert record["node"] == "n1"
    assert [entry[:2] for entry in record["containers"]["main"]] == [[1, "GPU-b"]]


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(bound("b"), id="not-reported-yet"),
        pytest.param(bound(annotations={ALLOCATION: "x"}), id="own-record"),
        pytest.param(builders.pod(), id="asks-for-other-things"),
    ],
)
def test_other_pods_are_left_as_they_are(shown):
    _, told = witness(pod("a", gpus=["GPU-b"]))

    assert told.complete_pod(shown) is shown


def test_namesake_of_a_reported_pod_is_not_taken_for_it():
    _, told = witness(pod("a", gpus=["GPU-b"], uid="another"))

    assert told.complete_pod(bound()).annotations == {}


class Looking:
    """A state that notes which nodes it was told to look at."""

    def __init__(self):
        self.looked = []

    def reread_node(self, name):
        self.looked.append(name)


def test_ledger_looks_again_at_nodes_that_told_something_new():
    async def scene():
        registry, state = Scene(), Looking()
        task = asyncio.create_task(follow_reports(registry.broadcaster, state))
        async with asyncio.timeout(20):
            while registry.broadcaster.watching < 2:
                await asyncio.sleep(0)
            registry.tell(node("n1", pods=[pod("a")]))
            registry.tell(node("n2"))
            while set(state.looked) != {"n1", "n2"}:
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

        assert registry.broadcaster.watching == 0

    asyncio.run(scene())
