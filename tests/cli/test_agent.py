import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from slicewise.cli.agent import agent, read_options
from slicewise.model import MiB
from slicewise.nodeagent.settings import DIALECTS, IdentityMode

DOCS = (Path(__file__).parents[2] / "docs" / "agent.md").read_text()


def command(*argv, env=None):
    """What the flags amount to, with a clean environment."""
    found = {}
    runner = CliRunner(env={"NODE_NAME": None, **(env or {})})
    original = agent.callback
    agent.callback = lambda **flags: found.update(read=read_options(flags))
    try:
        result = runner.invoke(agent, list(argv), catch_exceptions=False)
    finally:
        agent.callback = original
    assert result.exit_code == 0, result.output
    return found["read"]


def test_defaults_are_the_hosts_own_paths():
    settings = command("--node-name=n0").settings

    assert settings.node == "n0"
    assert settings.dialects == DIALECTS
    assert settings.identity is None
    assert str(settings.paths.plugins) == "/var/lib/kubelet/device-plugins"
    assert [str(path) for path in settings.paths.vendor_cdi] == ["/etc/cdi", "/var/run/cdi"]
    assert settings.require_gpus


def test_flag_beats_environment_beats_file_beats_default(tmp_path):
    file = tmp_path / "agent.yaml"
    file.write_text("identity: match\nmemory-unit: MiB\naddress: 127.0.0.1:1\nrecord-seconds: 3\n")
    env = {"SLICEWISE_AGENT_IDENTITY": "cdi", "SLICEWISE_AGENT_ADDRESS": "127.0.0.1:2"}
    read = command(f"--config={file}", "--address=127.0.0.1:3", env=env)

    assert read.listen.port == 3
    assert read.settings.identity is IdentityMode.CDI
    assert read.settings.share_unit == MiB(1)
    assert read.settings.record_seconds == 3.0
    assert read.settings.sweep_seconds == 60.0


def test_old_spellings_are_understood():
    read = command(
        "-nodeName=n1", "--container-runtime-endpoint=unix:///run/x.sock", "-logtostderr", "--v=5",
        "--share-mode=true", "--device-plugin-path=/p",
    )  # fmt: skip

    assert read.settings.node == "n1"
    assert str(read.flags.runtime) == "/run/x.sock"
    assert str(read.settings.paths.plugins) == "/p"


def test_every_flag_of_gpushares_plugin_is_understood():
    read = command(
        "-logtostderr", "--v=5", "--memory-unit=MiB", "--health-check", "-mps=true",
        "--query-kubelet", "--kubelet-address=0.0.0.0", "--kubelet-port=10250",
        "--client-cert=c", "--client-key=k", "--token=t", "--timeout=10",
    )  # fmt: skip

    assert read.settings.share_unit == MiB(1)


def test_unit_that_is_none_is_gib_with_a_warning():
    told = CliRunner().invoke(agent, ["--memory-unit=GB", "--nvml=fake"]).output

    assert command("--memory-unit=GB").settings.share_unit == MiB(1024)
    assert "'GB': expected GiB or MiB; GiB is taken" in told


def test_simulated_gpus_need_no_device_nodes():
    read = command("--nvml=simulated:/gpus.yaml")

    assert read.simulated
    assert str(read.driver_file) == "/gpus.yaml"
    assert not read.settings.require_gpus
    assert command("--nvml=simulated", "--missing-gpus=refuse").settings.require_gpus


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("--dialects=gpushar", "expected slicewise"),
        ("--nvml=fake", "expected library or simulated:FILE"),
        ("--device-memory-scaling=2", "at most 1"),
        ("--address=5678", "expected host:port"),
        ("--identity=guess", "'guess' is not one of"),
    ],
)
def test_flag_that_cannot_be_meant_is_refused_with_what_is_expected(flag, why):
    result = CliRunner().invoke(agent, [flag])

    assert result.exit_code == 2
    assert why in result.output


@pytest.mark.parametrize("text", ["nonsense: 1", "- a", "a: [", "identity"])
def test_file_that_is_no_list_of_flags_is_refused(tmp_path, text):
    file = tmp_path / "agent.yaml"
    file.write_text(text)
    result = CliRunner().invoke(agent, [f"--config-file={file}"])

    assert result.exit_code == 2
    assert str(file) in result.output.replace("\n", "")


def test_every_flag_is_described():
    section = DOCS.partition("## Flags")[2].partition("\n## ")[0]
    shown = [option for option in agent.params if not getattr(option, "hidden", False)]
    flags = {option.opts[0] for option in shown} - {"--version", "-v", "--log-level"}

    assert {flag for flag in flags if f"`{flag}`" not in section} == set()


def test_agent_loads_neither_the_engine_nor_its_arrays():
    heavy = ("numpy", "matplotlib", "slicewise.placement", "slicewise.cluster", "slicewise.sim")
    code = f"import slicewise.cli.agent, sys; print([m for m in {heavy} if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert printed.stdout == b"[]\n"


def test_missing_driver_is_one_line_that_says_what_to_do(tmp_path):
    flags = ["--identity=cdi", f"--nvml=simulated:{tmp_path / 'none.yaml'}"]
    result = CliRunner().invoke(agent, flags)

    assert result.exit_code == 1
    assert "none.yaml" in result.output
    assert "Traceback" not in result.output
