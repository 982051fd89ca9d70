import json

import pytest
import yaml
from click.testing import CliRunner

from fakes.cluster import FakeState, FakeWriter
from slicewise.cli.main import main
from slicewise.dialects import DEFAULT
from slicewise.extender.handlers import Extender
from slicewise.extender.routes import build_routes

GPU_ADMISSION = {
    "kind": "Policy",
    "apiVersion": "v1",
    "predicates": [{"name": "PodFitsHostPorts"}],
    "extenders": [
        {
            "urlPrefix": "http://10.0.0.1:3456/scheduler",
            "apiVersion": "v1beta1",
            "filterVerb": "predicates",
            "enableHttps": False,
            "nodeCacheCapable": False,
        }
    ],
}


def run(*arguments):
    result = CliRunner().invoke(main, ["scheduler-config", *arguments])
    assert result.exit_code == 0, result.output
    return yaml.safe_load(result.stdout)


def convert(tmp_path, document, *arguments):
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(document))
    return run("--from", str(path), *arguments)


@pytest.mark.parametrize("dialect", [*DEFAULT.extender_configs, "all"])
def test_configured_verbs_are_routes_we_serve(dialect):
    (extender,) = run("--dialect", dialect, "--url", "http://x:1")["extenders"]

    prefix = extender["urlPrefix"].removeprefix("http://x:1")
    verbs = [word for key, word in extender.items() if key.endswith("Verb")]
    served = build_routes(Extender(FakeState(), FakeWriter())).paths
    assert verbs
    assert [verb for verb in verbs if f"{prefix}/{verb}" not in served] == []


@pytest.mark.parametrize("dialect", [*DEFAULT.extender_configs, "all"])
def test_managed_resources_are_ones_we_read(dialect):
    (extender,) = run("--dialect", dialect)["extenders"]

    names = {each["name"] for each in extender.get("managedResources", [])}
    assert names <= DEFAULT.resources
    assert (dialect in ("gpu-admission", "gpuscheduler")) == (not names)


def test_bind_is_never_ignorable():
    for dialect in (*DEFAULT.extender_configs, "all"):
        (extender,) = run("--dialect", dialect)["extenders"]
        assert not ("bindVerb" in extender and extender["ignorable"])


def test_old_policy_is_converted(tmp_path):
    config = convert(tmp_path, GPU_ADMISSION)

    assert config["apiVersion"] == "kubescheduler.config.k8s.io/v1"
    assert config["extenders"] == [
        {
            "urlPrefix": "http://10.0.0.1:3456/scheduler",
            "filterVerb": "predicates",
            "enableHTTPS": False,
            "nodeCacheCapable": False,
        }
    ]


def test_old_keys_are_read_in_any_case_and_timeouts_in_nanoseconds(tmp_path):
    extender = {
        "URLPREFIX": "https://h/x",
        "prioritizeverb": "prioritize",
        "HttpTimeout": 5_000_000_000,
        "TLSConfig": {"CAFile": "/ca.pem", "CertFile": "/c.pem", "KeyFile": "/k.pem"},
        "managedResources": [{"Name": "aliyun.com/gpu-mem", "ignoredByScheduler": True}],
        "strange": 1,
    }

    config = convert(tmp_path, {"Kind": "Policy", "Extenders": [extender]})

    assert config["extenders"] == [
        {
            "urlPrefix": "https://h/x",
            "prioritizeVerb": "prioritize",
            "weight": 1,
            "enableHTTPS": True,
            "tlsConfig": {"caFile": "/ca.pem", "certFile": "/c.pem", "keyFile": "/k.pem"},
            "httpTimeout": "5s",
            "managedResources": [{"name": "aliyun.com/gpu-mem", "ignoredByScheduler": True}],
        }
    ]


def test_converted_policy_can_be_pointed_at_another_extender(tmp_path):
    config = convert(tmp_path, GPU_ADMISSION, "--url", "https://slicewise:443", "--tls-ca", "/c")

    (extender,) = config["extenders"]
    assert extender["urlPrefix"] == "https://slicewise:443/scheduler"
    assert extender["enableHTTPS"]
    assert extender["tlsConfig"] == {"caFile": "/c"}


@pytest.mark.parametrize(
    "text", ["[]", '{"kind": "Other"}', "{", '{"kind":"Policy","extenders":[1]}']
)
def test_what_is_no_policy_is_refused(tmp_path, text):
    path = tmp_path / "policy.json"
    path.write_text(text)

    result = CliRunner().invoke(main, ["scheduler-config", "--from", str(path)])

    assert result.exit_code == 1
    assert "Error" in result.output


def fail(tmp_path, text, *arguments):
    path = tmp_path / "config"
    path.write_text(text)
    result = CliRunner().invoke(main, ["scheduler-config", "--from", str(path), *arguments])
    assert result.exit_code == 1, result.output
    return result.output.replace("\n", " ")


def convert_text(tmp_path, text, *arguments):
    """The configuration, and what was said of it."""
    path = tmp_path / "config"
    path.write_text(text)
    result = CliRunner().invoke(main, ["scheduler-config", "--from", str(path), *arguments])
    assert result.exit_code == 0, result.output
    return yaml.safe_load(result.stdout), result.stderr


# As nvidia-gpu-scheduler's document shows it, with its ellipsis and without its kind.
NGS = """\
apiVersion: kubescheduler.config.k8s.io/v1alpha2
...
extenders:
  - urlPrefix: 'https://<kube-apiserver>:6443/apis/metrics.nvidia.com/v1alpha1/schedule'
    filterVerb: filter
    prioritizeVerb: prioritize
    enableHttps: true
    nodeCacheCapable: true
    ignorable: true
    TLSConfig:
      CAFile: /etc/kubernetes/ssl/ca.pem
      CertFile: /etc/kubernetes/ssl/admin.pem
      KeyFile: /etc/kubernetes/ssl/admin-key.pem
profiles:
- schedulerName: default-scheduler
"""
ELASTIC = """{
\t"urlPrefix": "http://<api>/api/v1/namespaces/kube-system/services/e/proxy/scheduler",
\t"filterVerb": "filter",
\t"bindVerb": "bind",
\t"managedResources": [{"name": "elastic-gpu/gpu-percent"}]
}"""


def test_old_configuration_with_an_ellipsis_and_without_its_kind_is_converted(tmp_path):
    config, said = convert_text(tmp_path, NGS, "--url", "https://10.0.0.1:6443")

    (extender,) = config["extenders"]
    assert config["apiVersion"] == "kubescheduler.config.k8s.io/v1"
    assert extender["urlPrefix"] == (
        "https://10.0.0.1:6443/apis/metrics.nvidia.com/v1alpha1/schedule"
    )
    assert extender["tlsConfig"]["certFile"] == "/etc/kubernetes/ssl/admin.pem"
    assert "kind is missing" in said
    assert "'...' ends a YAML document" in said
    assert "v1alpha2 becomes kubescheduler.config.k8s.io/v1" in said


def test_placeholder_of_a_document_is_named_instead_of_printed(tmp_path):
    told = fail(tmp_path, NGS)

    assert "urlPrefix='https://<kube-apiserver>:6443/apis" in told
    assert "pass --url" in told


def test_bare_extender_with_tabs_is_converted_and_loses_the_services_proxy(tmp_path):
    config, said = convert_text(tmp_path, ELASTIC, "--url", "http://10.0.0.2:39999")

    (extender,) = config["extenders"]
    assert extender["urlPrefix"] == "http://10.0.0.2:39999/scheduler"
    assert extender["managedResources"][0]["name"] == "elastic-gpu/gpu-percent"
    assert "a part of a configuration" in said


def test_list_of_extenders_alone_is_converted(tmp_path):
    text = f"extenders: [{ELASTIC}]".replace("\t", " ")

    assert len(convert_text(tmp_path, text, "--url", "http://x")[0]["extenders"]) == 1


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3", "v1"])
def test_configuration_of_every_version_is_converted(tmp_path, version):
    group = "kubescheduler.config.k8s.io"
    document = {
        "apiVersion": f"{group}/{version}",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"},
        "leaderElection": {"leaderElect": True, "resourceLock": "endpoints"},
        "extenders": [{"urlPrefix": "http://x", "filterVerb": "filter", "enableHTTPS": False}],
    }

    config, _ = convert_text(tmp_path, json.dumps(document), "--kubeconfig", "/k")

    assert config["apiVersion"] == f"{group}/v1"
    assert config["leaderElection"] == {"leaderElect": True, "resourceLock": "leases"}
    assert config["clientConnection"] == {"kubeconfig": "/k"}
    assert config["profiles"] == [{"schedulerName": "default-scheduler"}]
    assert config["extenders"][0]["urlPrefix"] == "http://x"


def test_names_of_schedulers_are_kept_unless_another_is_given(tmp_path):
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1beta2",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "gpu-scheduler"}],
    }
    old = {**document, "apiVersion": "kubescheduler.config.k8s.io/v1alpha1", "profiles": None}

    def names(given, *words):
        profiles = convert_text(tmp_path, json.dumps(given), *words)[0]["profiles"]
        return [each["schedulerName"] for each in profiles]

    assert names(document) == ["gpu-scheduler"]
    assert names({**old, "schedulerName": "mine"}) == ["mine"]
    assert names(document, "--scheduler-name", "other") == ["other"]
    several = {**document, "profiles": [{"schedulerName": "a"}, {"schedulerName": "b"}]}
    assert names(several, "--scheduler-name", "other") == ["a", "b", "other"]
    assert names(GPU_ADMISSION, "--scheduler-name", "gpu-scheduler") == ["gpu-scheduler"]


def test_plugins_are_kept_where_they_mean_the_same_and_named_where_not(tmp_path):
    plugins = {"score": {"disabled": [{"name": "SelectorSpread"}, {"name": "ImageLocality"}]}}
    arguments = [{"name": "X", "args": {"apiVersion": "kubescheduler.config.k8s.io/v1beta2"}}]
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1beta2",
        "kind": "KubeSchedulerConfiguration",
        "healthzBindAddress": "0.0.0.0:10251",
        "profiles": [{"plugins": plugins, "pluginConfig": arguments}],
    }

    config, said = convert_text(tmp_path, json.dumps(document))
    older = json.dumps({**document, "apiVersion": "kubescheduler.config.k8s.io/v1beta1"})
    dropped, said_of_older = convert_text(tmp_path, older)

    (profile,) = config["profiles"]
    assert profile["plugins"] == {"score": {"disabled": [{"name": "ImageLocality"}]}}
    assert profile["pluginConfig"][0]["args"] == {"apiVersion": "kubescheduler.config.k8s.io/v1"}
    assert "plugin SelectorSpread is left out" in said
    assert "healthzBindAddress not carried over" in said
    assert "plugins" not in dropped["profiles"][0]
    assert "plugins and pluginConfig of profile default-scheduler not carried" in said_of_older


def test_policy_that_a_configuration_points_to_is_named(tmp_path):
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1alpha1",
        "kind": "KubeSchedulerConfiguration",
        "algorithmSource": {"policy": {"file": {"path": "/etc/policy.json"}}},
    }

    assert "/etc/policy.json" in convert_text(tmp_path, json.dumps(document))[1]


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (("--dialect", "gpuscheduler"), ("--tls-ca", "--tls-cert", "--tls-key")),
        (("--dialect", "gpuscheduler", "--tls-ca", "/ca"), ("--tls-cert", "--tls-key")),
        (("--dialect", "slicewise"), ("--tls-ca",)),
    ],
)
def test_https_without_its_files_says_which_are_missing(words, missing):
    words = ["scheduler-config", "--url", "https://k:6443", *words]
    result = CliRunner().invoke(main, words)

    assert result.exit_code == 1
    assert result.stdout == ""
    named = [flag for flag in ("--tls-ca", "--tls-cert", "--tls-key") if f"{flag} with" in
             result.output]  # fmt: skip
    assert tuple(named) == missing


def test_files_of_tls_stand_in_the_configuration():
    files = ("--tls-ca", "/ca", "--tls-cert", "/c", "--tls-key", "/k")
    config = run("--dialect", "gpuscheduler", "--url", "https://k:6443", *files)

    assert config["extenders"][0]["tlsConfig"] == {
        "caFile": "/ca", "certFile": "/c", "keyFile": "/k",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\n---\na: 2\n", "2 documents in one file: expected one"),
        ("kind: KubeSchedulerConfiguration\napiVersion: v1\n", "apiVersion='v1': expected"),
        ("kind: Policy\nextenders: x\n", "extenders is 'x': expected a list"),
        ("\t: {", "neither JSON nor YAML"),
    ],
)
def test_what_cannot_be_converted_says_why(tmp_path, text, words):
    assert words in fail(tmp_path, text)
