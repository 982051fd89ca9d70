import logging

import click
import pytest

from slicewise.cli.extender import DEFAULT_ADDRESS, extender, read_settings
from slicewise.cli.options import read_address
from slicewise.cli.render.logs import read_level
from slicewise.dialects import QuotaLabels
from slicewise.extender.signing import SigningSettings


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
    ("address", "expected"),
    [
        ("0.0.0.0:3456", ("0.0.0.0", 3456)),
        (":80", ("0.0.0.0", 80)),
        ("[::1]:80", ("::1", 80)),
        (None, ("127.0.0.1", 3456)),
    ],
)
def test_address_is_read_as_the_originals_did(address, expected):
    assert read_address(address, DEFAULT_ADDRESS) == expected


def test_port_of_the_originals_means_every_interface_and_one_warning_says_so(monkeypatch, capsys):
    monkeypatch.setenv("PORT", "12345")

    listen = settings().listen

    assert (listen.host, listen.port) == ("0.0.0.0", 12345)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert told[0].startswith("PORT=12345: listening on all interfaces without TLS")


def test_port_opens_nothing_where_an_address_is_given_or_it_is_no_number(monkeypatch, capsys):
    monkeypatch.setenv("PORT", "12345")
    assert settings("--address=127.0.0.1:80").listen.host == "127.0.0.1"
    assert capsys.readouterr().err == ""

    monkeypatch.setenv("PORT", "many")
    assert settings().listen.host == "127.0.0.1"
    assert "PORT='many': expected a port number; not used" in capsys.readouterr().err


def test_port_behind_mutual_tls_needs_no_warning(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PORT", "12345")
    pem = tmp_path / "x.pem"
    pem.touch()

    listen = settings(*(f"--tls-{word}={pem}" for word in ("cert", "key", "client-ca"))).listen

    assert listen.host == "0.0.0.0"
    assert capsys.readouterr().err == ""


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


def test_flags_without_effect_are_named_in_one_warning_with_the_reason(capsys):
    settings(
        "--pprofAddress=127.0.0.1:3457", "-isLoadSchedule", "--logtostderr=true", "--log_dir=/"
    )

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("accepted without effect: --pprofAddress (there is no Go profile")
    assert "-isLoadSchedule (load is measured" in line
    assert "--logtostderr, --log-dir (logs are JSON lines on standard output)" in line


def test_flags_of_the_images_variable_are_appended(monkeypatch):
    monkeypatch.setenv("EXTRA_FLAGS", "--policy=spread --v=4")

    assert settings("--policy=binpack").state.policy == "spread"
    monkeypatch.setenv("EXTRA_FLAGS", "'")
    with pytest.raises(click.UsageError, match="EXTRA_FLAGS"):
        settings()


def test_labels_of_gpu_admissions_file_are_honoured(tmp_path, capsys):
    old = tmp_path / "admission.json"
    old.write_text(
        '{"GPUModelLabel": "example.com/model", "GPUPoolLabel": "example.com/pool",'
        ' "SkipBindTime": 300000}'
    )

    labels = settings("--config", str(old)).labels

    assert labels == QuotaLabels("example.com/model", "example.com/pool")
    assert "'SkipBindTime' is no flag of this command: ignored" in capsys.readouterr().err


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
        ["--trust-configmap", "noslash"],
        ["--signing-secret", "noslash"],
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


@pytest.mark.parametrize("address", [":3456", "0.0.0.0:3456", "10.1.2.3:3456", "[::]:3456"])
def test_address_that_others_reach_needs_mutual_tls_or_a_word(tmp_path, address):
    pem = tmp_path / "x.pem"
    pem.touch()
    pair = ("--tls-cert", str(pem), "--tls-key", str(pem))

    for files in ((), pair):
        with pytest.raises(click.UsageError) as refused:
            settings("--address", address, *files)
        assert f"--address={address}" in refused.value.message
        assert "--tls-client-ca, or --insecure" in refused.value.message
    assert settings("--address", address, *pair, "--tls-client-ca", str(pem)).listen.port == 3456
    assert settings("--address", address, "--insecure").listen.port == 3456


def test_names_of_clients_need_the_authority_that_vouches_for_them(tmp_path):
    pem = tmp_path / "x.pem"
    pem.touch()
    files = [f"--tls-{word}={pem}" for word in ("cert", "key", "client-ca")]

    with pytest.raises(click.UsageError, match="needs --tls-client-ca"):
        settings("--tls-client-name=a")
    names = settings(*files, "--tls-client-name=a", "--tls-client-name=b").listen.tls.client_names
    assert names == {"a", "b"}


def test_half_of_the_connections_are_one_addresses_at_most():
    limits = settings("--max-connections=10").listen.limits

    assert (limits.connections, limits.connections_per_peer) == (10, 5)


def test_levels_of_klog_and_gpushare_are_understood(monkeypatch):
    assert read_level(flags()) == logging.INFO
    assert read_level(flags("-v", "5")) == logging.DEBUG
    monkeypatch.setenv("LOG_LEVEL", "warn")
    assert read_level(flags()) == logging.WARNING


def test_replicas_elect_a_leader_unless_told_otherwise():
    assert settings().leader_elect
    assert settings().lease == ("kube-system", "slicewise-extender")
    assert not settings("--no-leader-elect").leader_elect


def test_records_are_signed_unless_told_otherwise_with_keys_of_a_secret():
    read = settings()

    assert read.signing == SigningSettings()
    assert read.state.trust == ("kube-system", "slicewise-trust")


def test_keys_and_the_takeover_are_read_from_flags(tmp_path):
    key = tmp_path / "key.pem"
    key.write_text("")

    read = settings(
        "--signing-key", str(key), "--take-over", "--trust-configmap", "a/b",
        "--signing-secret", "c/d",
    )  # fmt: skip

    assert read.signing == SigningSettings(secret=("c", "d"), key_file=key, take_over=True)
    assert read.state.trust == ("a", "b")
