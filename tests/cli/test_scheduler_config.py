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
        "TLSConfig": {"CAFile": "/ca.pem", "KeyFile": "/k.pem"},
        "managedResources": [{"Name": "aliyun.com/gpu-mem", "ignoredByScheduler": True}],
        "strange": 1,
    }

    config = convert(tmp_path, {"Kind": "Policy", "Extenders": [extender]})

    assert config["extenders"] == [
        {
            "urlPrefix": "https://h/x",
            "prioritizeVerb": "prioritize",
            "weight": 1,
            "tlsConfig": {"caFile": "/ca.pem", "keyFile": "/k.pem"},
            "httpTimeout": "5s",
            "managedResources": [{"name": "aliyun.com/gpu-mem", "ignoredByScheduler": True}],
        }
    ]


def test_converted_policy_can_be_pointed_at_another_extender(tmp_path):
    config = convert(tmp_path, GPU_ADMISSION, "--url", "https://slicewise:443")

    (extender,) = config["extenders"]
    assert extender["urlPrefix"] == "https://slicewise:443/scheduler"
    assert extender["enableHTTPS"]


@pytest.mark.parametrize(
    "text", ["[]", '{"kind": "Other"}', "{", '{"kind":"Policy","extenders":[1]}']
)
def test_what_is_no_policy_is_refused(tmp_path, text):
    path = tmp_path / "policy.json"
    path.write_text(text)

    result = CliRunner().invoke(main, ["scheduler-config", "--from", str(path)])

    assert result.exit_code == 1
    assert "Error" in result.output
