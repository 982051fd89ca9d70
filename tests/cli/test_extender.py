import logging

import click
import pytest

from slicewise.cli.extender import DEFAULT_ADDRESS, extender, read_settings
from slicewise.cli.logs import read_level
from slicewise.cli.options import read_address


def settings(*arguments, monkeypatch=None):
    with extender.make_context("extender", list(arguments)) as context:
        return read_settings(context.params)


def flags(*arguments):
    with extender.make_context("extender", list(arguments)) as context:
        return context.params


@pytest.fixture(autouse=True)
def _no_port(monkeypatch):
    monkeypatch.delenv("PORT", raising=False)
    monkeypatch.delenv("LOG_LEVEL", raising=False)


def test_listens_on_loopback_unless_told():
    listen = settings().listen

    assert (listen.host, listen.port, listen.tls) == ("127.0.0.1", 3456, None)


@pytest.mark.parametrize(
    ("address", "port", "expected"),
    [
        ("0.0.0.0:3456", None, ("0.0.0.0", 3456)),
        (":80", "12345", ("0.0.0.0", 80)),
        ("[::1]:80", None, ("::1", 80)),
        (None, "12345", ("127.0.0.1", 12345)),
        (None, "many", ("127.0.0.1", 3456)),
    ],
)
def test_address_and_port_are_read_as_the_originals_did(address, port, expected):
    assert read_address(address, DEFAULT_ADDRESS, port) == expected


@pytest.mark.parametrize("text", ["3456", "host:", "host:x", "host:70000"])
def test_broken_address_is_refused(text):
    with pytest.raises(click.BadParameter, match="expected host:port"):
        read_address(text, DEFAULT_ADDRESS)


def test_gpu_admissions_command_line_is_accepted(tmp_path):
    config = tmp_path / "config"
    config.write_text("{}")

    read = settings(
        "--address=127.0.0.1:3456",
        "--v=4",
        "--kubeconfig",
        str(config),
        "--logtostderr=true",
        "--pprofAddress=127.0.0.1:3457",
        "--nodeCacheCapable=true",
        "--log_dir=/x",
        "--alsologtostderr",
        "--stderrthreshold=2",
        "--incluster-mode=false",
    )

    assert read.kubeconfig == config


def test_elastics_command_line_is_accepted():
    read = settings("-priority", "spread", "-mode", "gpushare,qgpu", "-v", "5")

    assert read.state.policy == "spread"


def test_policy_wins_over_elastics_word():
    assert settings("--policy", "fgd", "-priority=binpack").state.policy == "fgd"


@pytest.mark.parametrize(
    "arguments",
    [
        ["-priority", "sample"],
        ["-mode", "other"],
        ["--policy", "nonsense"],
        ["--quota-configmap", "noslash"],
    ],
)
def test_words_that_mean_nothing_are_refused(arguments):
    with pytest.raises(click.BadParameter, match="expected"):
        settings(*arguments)


def test_quota_place_comes_from_flag_then_file_then_default(tmp_path):
    old = tmp_path / "admission.json"
    old.write_text('{"QuotaConfigMapName": "q", "QuotaConfigMapNamespace": "gpu"}')

    assert settings().state.quota == ("kube-system", "gpuquota")
    assert settings("--config", str(old)).state.quota == ("gpu", "q")
    assert settings("--config", str(old), "--quota-configmap", "a/b").state.quota == ("a", "b")
    assert settings("--quota-configmap", "").state.quota is None


def test_certificates_come_in_pairs(tmp_path):
    pem = tmp_path / "x.pem"
    pem.write_text("")

    with pytest.raises(click.UsageError, match="together"):
        settings("--tls-cert", str(pem))
    with pytest.raises(click.UsageError, match="needs --tls-cert"):
        settings("--tls-client-ca", str(pem))
    tls = settings("--tls-cert", str(pem), "--tls-key", str(pem), "--tls-client-ca", str(pem))
    assert tls.listen.tls.require_client


def test_levels_of_klog_and_gpushare_are_understood(monkeypatch):
    assert read_level(flags()) == logging.INFO
    assert read_level(flags("-v", "5")) == logging.DEBUG
    monkeypatch.setenv("LOG_LEVEL", "warn")
    assert read_level(flags()) == logging.WARNING


def test_lease_counts_only_when_asked_for():
    assert settings().lease is None
    assert settings("--leader-elect").lease == ("kube-system", "slicewise-extender")
