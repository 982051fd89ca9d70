from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from slicewise.cli.agent import _read_report
from slicewise.cli.metrics_api import metrics_api, read_settings
from slicewise.cli.options import read_service_name


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.delenv("MetadataName", raising=False)
    monkeypatch.delenv("MetadataNamespace", raising=False)
    return tmp_path


def read(*words):
    """Every flag's value, after flags, environment, file and defaults."""
    with metrics_api.make_context("metrics-api", [str(word) for word in words]) as context:
        return context.params


def test_defaults_are_the_originals():
    flags = read()
    settings = read_settings(flags)

    assert (settings.listen.host, settings.listen.port) == ("0.0.0.0", 8080)
    assert settings.listen.tls is None
    assert flags["enable_scheduler"] is True
    assert (settings.name, settings.namespace) == (
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
    }
    (home / ".metrics-podresource.yaml").write_text(yaml.safe_dump(document))

    flags = read("-p", 8443)

    assert flags["secure_port"] == 8443
    assert flags["tls_auto"] is False
    assert flags["enable_scheduler"] is False
    assert flags["tls_ca"] == "/ca.pem"
    assert flags["parallelism"] == 3


@pytest.mark.parametrize("text", ["- a", "secure-port: high", "a: ["])
def test_file_that_makes_no_sense_is_refused(home, text):
    path = home / "config.yaml"
    path.write_text(text)

    with pytest.raises(click.BadParameter, match=r"config\.yaml"):
        read("--config", path)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        pytest.param(("--tls-auto",), True, id="alone"),
        pytest.param(("--tls-auto=true",), True, id="true"),
        pytest.param(("--tls-auto=false",), False, id="false"),
        pytest.param((), True, id="absent"),
    ],
)
def test_switches_are_written_as_go_writes_them(words, value):
    assert read(*words)["tls_auto"] is value


def test_written_configuration_is_read_back(home, monkeypatch):
    # Logs of a command belong to its process, which here is the tests' own.
    monkeypatch.setattr("slicewise.cli.metrics_api.configure_logs", lambda _: None)
    path = home / "written.yaml"
    result = CliRunner().invoke(
        metrics_api, ["-p", "9000", "--tls-auto=false", "--write-config-to", str(path)]
    )

    assert result.exit_code == 0, result.output
    assert read("--config", path) == read("-p", 9000, "--tls-auto=false")
    assert "tls-auto" in yaml.safe_load(path.read_text())


def test_files_are_needed_where_certificates_are_not_made():
    with pytest.raises(click.BadParameter, match="expected a PEM file"):
        read_settings(read("--tls-auto=false"))


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
    flags = {"report_to": None, "report_ca": None, "report_token": None, "report_replicas": ()}
    assert _read_report(flags) is None
    monkeypatch.setenv("MetadataName", "gpu-x7k2p")
    monkeypatch.setenv("MetadataNamespace", "ops")

    report = _read_report(flags)

    assert report.address == "https://gpu.ops.svc"
    assert report.secret == ("ops", "gpu")
