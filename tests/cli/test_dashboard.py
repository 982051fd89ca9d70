import click
import pytest
from click.testing import CliRunner

from slicewise.cli.dashboard import dashboard, read_settings
from slicewise.cli.main import main
from slicewise.dialects import QuotaLabels
from slicewise_playground.cluster import Playground


@pytest.fixture
def kubeconfig(tmp_path):
    with Playground() as playground:
        yield playground.write_kubeconfig(tmp_path / "kubeconfig")


def settings(kubeconfig, *words):
    context = dashboard.make_context("dashboard", ["--kubeconfig", str(kubeconfig), *words])
    return read_settings(context.params)


@pytest.mark.parametrize(
    ("words", "auth"),
    [
        pytest.param((), "none", id="loopback-by-default"),
        pytest.param(("--address", "localhost:1"), "none", id="localhost"),
        pytest.param(("--address", "[::1]:1"), "none", id="ipv6-loopback"),
        pytest.param(("--auth", "kubernetes"), "kubernetes", id="asked-for-on-loopback"),
        pytest.param(("--address", ":8484", "--insecure"), "kubernetes", id="every-address"),
        pytest.param(("--address", "10.0.0.1:1", "--insecure"), "kubernetes", id="another"),
    ],
)
def test_whoever_is_not_on_this_machine_needs_a_token(kubeconfig, words, auth):
    assert settings(kubeconfig, *words).auth == auth


@pytest.mark.parametrize("address", [":8484", "0.0.0.0:8484", "10.0.0.1:8484", "[::]:8484"])
def test_open_page_beyond_loopback_is_refused(kubeconfig, address):
    with pytest.raises(click.UsageError, match="--auth=none shows the cluster to everybody"):
        settings(kubeconfig, "--auth", "none", "--address", address)


def test_tokens_in_the_clear_must_be_asked_for(kubeconfig, tmp_path):
    pem = tmp_path / "x.pem"
    pem.touch()
    files = ("--tls-cert", str(pem), "--tls-key", str(pem))

    with pytest.raises(click.UsageError, match=r"--address=:8484: 0\.0\.0\.0 is not loopback"):
        settings(kubeconfig, "--address", ":8484")
    assert settings(kubeconfig, "--address", ":8484", *files).page.listen.tls


@pytest.mark.parametrize("address", ["here", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000"])
def test_address_that_is_none_is_named(kubeconfig, address):
    with pytest.raises(click.BadParameter, match="expected host:port"):
        settings(kubeconfig, "--address", address)


def test_certificate_without_key_is_refused(kubeconfig, tmp_path):
    certificate = tmp_path / "cert.pem"
    certificate.touch()

    with pytest.raises(click.UsageError, match="only of use together"):
        settings(kubeconfig, "--tls-cert", str(certificate))


def test_quota_may_be_left_out(kubeconfig):
    assert settings(kubeconfig, "--quota-configmap", "").state.quota is None
    assert settings(kubeconfig).state.quota == ("kube-system", "gpuquota")


def test_missing_kubeconfig_is_one_line(tmp_path):
    answer = CliRunner().invoke(main, ["dashboard", "--kubeconfig", str(tmp_path / "none")])

    assert answer.exit_code != 0
    assert answer.output.splitlines()[-1].startswith("Error: ")
    assert "none" in answer.output


def test_labels_of_the_quota_are_told_to_the_page(kubeconfig):
    read = settings(kubeconfig, "--model-label=x.org/model", "--pool-label=x.org/pool")

    assert read.state.quota_labels == QuotaLabels("x.org/model", "x.org/pool")
