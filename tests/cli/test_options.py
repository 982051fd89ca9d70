"""One settings mechanism for every service: flag, environment, file, default."""

import click
import pytest
from click.testing import CliRunner

from slicewise.cli.agent import agent
from slicewise.cli.dashboard import dashboard
from slicewise.cli.extender import extender
from slicewise.cli.metrics_api import metrics_api

# A service, one of its flags, and four values that it takes: flag, environment, file, default.
SERVICES = [
    pytest.param("agent", agent, "sweep-seconds", (1, 2, 3, 60), id="agent"),
    pytest.param("extender", extender, "max-body-mib", (1, 2, 3, 128), id="extender"),
    pytest.param("metrics-api", metrics_api, "secure-port", (1, 2, 3, 8080), id="metrics-api"),
    pytest.param("dashboard", dashboard, "max-connections", (4, 2, 3, 1024), id="dashboard"),
]


@pytest.fixture(autouse=True)
def _empty_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))


def read(command, *arguments):
    with command.make_context("x", [str(each) for each in arguments]) as context:
        return context.params


@pytest.mark.parametrize(("service", "command", "flag", "values"), SERVICES)
def test_flag_wins_over_environment_over_file_over_default(
    service, command, flag, values, monkeypatch, tmp_path
):
    in_flag, in_environment, in_file, default = values
    name = next(each.name for each in command.params if f"--{flag}" in each.opts)
    file = tmp_path / "settings.yaml"
    file.write_text(f"{flag}: {in_file}\n")

    assert read(command)[name] == default
    assert read(command, "--config", file)[name] == in_file
    monkeypatch.setenv(f"SLICEWISE_{service}_{flag}".upper().replace("-", "_"), str(in_environment))
    assert read(command, "--config", file)[name] == in_environment
    assert read(command, "--config", file, f"--{flag}={in_flag}")[name] == in_flag


@pytest.mark.parametrize(("service", "command", "flag", "values"), SERVICES)
def test_file_may_be_named_in_the_environment(
    service, command, flag, values, monkeypatch, tmp_path
):
    name = next(each.name for each in command.params if f"--{flag}" in each.opts)
    file = tmp_path / "settings.yaml"
    file.write_text(f"{flag}: {values[2]}\n")

    monkeypatch.setenv(f"SLICEWISE_{service}_CONFIG".upper().replace("-", "_"), str(file))

    assert read(command)[name] == values[2]


@pytest.mark.parametrize("command", [agent, extender, dashboard])
def test_unknown_key_is_named_with_its_file(command, tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("polcy: spread\n")

    result = CliRunner().invoke(command, ["--config", str(file)])

    assert result.exit_code == 2
    assert f"{file}: 'polcy': expected a flag of this command" in result.output


def test_unknown_key_of_the_original_metrics_server_is_skipped_with_a_warning(tmp_path, capsys):
    file = tmp_path / "settings.yaml"
    file.write_text("interval: 5\nsecure-port: 8443\n")

    assert read(metrics_api, "--config", file)["secure_port"] == 8443
    assert f"{file}: 'interval' is no flag of this command: ignored" in capsys.readouterr().err


def test_unknown_key_of_gpu_admissions_file_is_skipped_with_a_warning(tmp_path, capsys):
    file = tmp_path / "admission.json"
    file.write_text('{"QuotaConfigMapName": "q", "Extra": 1}')

    assert read(extender, "--config", file)["quota_configmap"] == "kube-system/q"
    assert f"{file}: 'Extra' is no flag of this command: ignored" in capsys.readouterr().err


def test_json_may_be_indented_with_tabs(tmp_path):
    file = tmp_path / "admission.json"
    file.write_text('{\n\t"QuotaConfigMapName": "q",\n\t"SkipBindTime": 300\n}\n')

    assert read(extender, "--config", file)["quota_configmap"] == "kube-system/q"


def test_key_without_a_value_leaves_the_default(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("bind-address:\n")

    assert read(metrics_api, "--config", file)["bind_address"] == "0.0.0.0"


def test_agents_file_may_be_named_by_its_other_flags_variable(monkeypatch, tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("sweep-seconds: 3\n")

    monkeypatch.setenv("SLICEWISE_AGENT_CONFIG_FILE", str(file))

    assert read(agent)["sweep_seconds"] == 3


@pytest.mark.parametrize("command", [agent, extender, metrics_api, dashboard])
def test_variable_with_a_version_is_no_flag(command, monkeypatch):
    for service in ("AGENT", "EXTENDER", "METRICS_API", "DASHBOARD"):
        monkeypatch.setenv(f"SLICEWISE_{service}_VERSION", "0.1.0")

    assert read(command)


@pytest.mark.parametrize(("service", "command", "flag", "values"), SERVICES)
def test_bad_value_is_named_with_its_file_and_key(service, command, flag, values, tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text(f"{flag}: many\n")

    with pytest.raises(click.BadParameter, match=f"settings.yaml: {flag}='many': "):
        read(command, "--config", file)


@pytest.mark.parametrize("text", ["- a", "a: [", "max-body-mib: [1, 2]"])
def test_file_that_makes_no_sense_is_refused(text, tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text(text)

    with pytest.raises(click.BadParameter, match=r"settings\.yaml"):
        read(extender, "--config", file)
