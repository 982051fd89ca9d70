"""Every flag of the original programs, as their users' manifests and command lines have it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from slicewise import __version__
from slicewise.cli.agent import agent, read_options
from slicewise.cli.extender import extender
from slicewise.cli.inspect_gpushare import main as inspect_gpushare
from slicewise.cli.metrics_api import metrics_api

KLOG = (
    "--logtostderr=true", "--alsologtostderr", "--v=4", "-v=5", "--stderrthreshold=2",
    "--vmodule=a=1", "--log-backtrace-at=:0", "--log_dir=/tmp", "--log-flush-frequency=5s",
)  # fmt: skip
FLAGS = {
    "gpu-admission": (
        extender,
        ("--address=127.0.0.1:3456", "--pprofAddress=127.0.0.1:3457", "--kubeconfig={file}",
         "--master=http://127.0.0.1:8080", "--nodeCacheCapable=true", "--enableComputeCapability",
         "--config={json}", "--incluster-mode=false", *KLOG),
    ),
    "elastic-gpu-scheduler": (
        extender,
        ("-priority=binpack", "-mode=gpushare", "-kubeconf={file}", "-isLoadSchedule",
         "-prometheusUrl=http://thanos", "-policyConfigPath=/data/policy.yaml",
         "-instancePort=9100", "-sync-period=5s", *KLOG),
    ),
    "gpu-manager": (
        agent,
        ("--driver=nvidia", "--share-mode=true", "--query-addr=localhost", "--query-port=5678",
         "--sample-period=1", "--node-labels=gaia.nvidia.com/gpu-model=", "--hostname-override=n",
         "--virtual-manager-path=/v", "--checkpoint-path=/c", "--device-plugin-path=/d/",
         "--container-runtime-endpoint=/var/run/dockershim.sock", "--cgroup-driver=systemd",
         "--device-memory-scaling=1", "--runtime-request-timeout=5s", "--wait-timeout=1m",
         "--kubeconfig={file}", "--extra-config=/nowhere", "--volume-config=/nowhere",
         "--allocation-check-period=30", *KLOG),
    ),
    "elastic-gpu-agent": (
        agent,
        ("-nodeName=n", "--nodename=n", "--dbFile=/host/var/lib/egpu/meta.db", "--dbfile=/m.db",
         "-kubeconf={file}", "-gpuPluginName=gpushare", *KLOG),
    ),
    "elastic-gpu-exporter": (
        agent, ("-node=n", "-interval=30", "-labels=elasticgpu.io/gpu-core", "-listen-address=:80")
    ),
    "gpuserver": (
        metrics_api,
        ("--config={yaml}", "-c={yaml}", "--bind-address=0.0.0.0", "-b=0.0.0.0",
         "--secure-port=8080", "-p=8080", "--tls-auto=true", "--tls-config.tls-ca-file=/ca.pem",
         "--tls-config.tls-cert-file=/c.pem", "--tls-config.tls-private-key-file=/k.pem",
         "--enable-scheduler=true", "--scheduler.parallelism=10", "--write-config-to={out}", *KLOG),
    ),
    "gpuserver-ds": (
        agent,
        ("--config={yaml}", "-c={yaml}", "--write-config-to={out}",
         "--localPodResourcesEndpoint=unix:///var/lib/kubelet/pod-resources/kubelet.sock",
         "--interval-wait-service=5s", *KLOG),
    ),
    "kubectl-inspect-gpushare": (inspect_gpushare, ("-d", *KLOG)),
}  # fmt: skip
CASES = [(program, flag) for program, (_, flags) in FLAGS.items() for flag in flags]


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("PORT", "NODE_NAME", "EXTRA_FLAGS"):
        monkeypatch.delenv(name, raising=False)


def read(program, *words, folder):
    """The flags of the program's command after this command line."""
    command, _ = FLAGS[program]
    for name, text in (("file", ""), ("json", "{}"), ("yaml", "{}")):
        (folder / name).write_text(text)
    places = {name: folder / name for name in ("file", "json", "yaml", "out")}
    with command.make_context(program, [word.format(**places) for word in words]) as context:
        return context.params


@pytest.mark.parametrize(("program", "flag"), CASES)
def test_flag_of_an_original_is_understood(program, flag, tmp_path):
    assert read(program, flag, folder=tmp_path) is not None


@pytest.mark.parametrize("program", FLAGS)
def test_version_is_shown_alone_and_with_a_value(program):
    command, _ = FLAGS[program]

    for words in (["--version"], ["--version=true"], ["-version=true"]):
        result = CliRunner().invoke(command, words)
        assert (result.exit_code, __version__ in result.output) == (0, True), words


@pytest.mark.parametrize("program", FLAGS)
def test_help_is_shown_for_one_letter(program):
    command, _ = FLAGS[program]

    result = CliRunner().invoke(command, ["-h"], env={"KUBECONFIG": "/nowhere"})

    assert result.exit_code == 0
    assert "Show this message and exit" in result.output


def test_gpu_managers_query_flags_say_where_the_agent_listens(tmp_path, capsys):
    given = ("--query-addr=0.0.0.0", "--query-port=5679")
    listen = read_options(read("gpu-manager", *given, folder=tmp_path)).listen

    assert (listen.host, listen.port) == ("0.0.0.0", 5679)
    assert "--query-addr=0.0.0.0: listening on all interfaces" in capsys.readouterr().err
    alone = read_options(read("gpu-manager", "--query-port=80", folder=tmp_path)).listen
    assert (alone.host, alone.port) == ("127.0.0.1", 80)


def test_gpuserver_ds_names_the_kubelets_socket_as_an_address_in_flag_and_file(tmp_path):
    address = "unix:///run/pods.sock"
    flags = read("gpuserver-ds", f"--localPodResourcesEndpoint={address}", folder=tmp_path)
    assert str(read_options(flags).settings.paths.pod_resources) == "/run/pods.sock"

    (tmp_path / ".metrics-podresource-ds.yaml").write_text(f"localPodResourcesEndpoint: {address}")
    flags = read("gpuserver-ds", folder=tmp_path)
    assert str(read_options(flags).settings.paths.pod_resources) == "/run/pods.sock"


def test_gpuserver_ds_writes_its_flags_and_exits(tmp_path):
    out = tmp_path / "out.yaml"

    result = CliRunner().invoke(agent, [f"--write-config-to={out}", "--pod-resources=/p.sock"])

    assert result.exit_code == 0
    assert out.read_text() == "localPodResourcesEndpoint: unix:///p.sock\n"


def test_gpu_managers_files_say_what_volumes_and_containers_hold(tmp_path):
    volume, extra = tmp_path / "volume.conf", tmp_path / "extra.json"
    row = {"name": "nvidia", "base": "/v", "components": {"libraries": ["libcuda.so"]}}
    volume.write_text(json.dumps({"volume": [row]}))
    extra.write_text(json.dumps({"default": {"devices": ["/dev/fuse"]}}))
    words = (f"--volume-config={volume}", f"--extra-config={extra}", "--display-socket=")

    options = read_options(read("gpu-manager", *words, folder=tmp_path))

    assert options.settings.places.drivers == "/v"
    assert options.settings.places.devices == ("/dev/fuse",)
    assert [each.libraries for each in options.manager.volumes.volumes] == [("libcuda",)]
    assert options.manager.display is None
    elsewhere = read_options(read("gpu-manager", *words, "--driver-volumes=/w", folder=tmp_path))
    assert elsewhere.settings.places.drivers == "/w"


def test_file_that_was_in_the_originals_image_alone_is_named_and_done_without(tmp_path, capsys):
    words = ("--volume-config=/etc/gpu-manager/volume.conf",)

    options = read_options(read("gpu-manager", *words, folder=tmp_path))

    assert [each.name for each in options.manager.volumes.volumes] == ["nvidia", "origin"]
    said = capsys.readouterr().err
    assert said.startswith("--volume-config: cannot read /etc/gpu-manager/volume.conf")
    assert said.endswith("not used\n")
