import pytest
import yaml
from click.testing import CliRunner

from slicewise.admission.policies import PolicySettings, build_binding, build_policies
from slicewise.cli.main import main
from slicewise.dialects import DEFAULT

POLICIES = build_policies(PolicySettings())


def print_policies(*words):
    result = CliRunner().invoke(main, ["admission-policies", *words])
    assert result.exit_code == 0, result.output
    return {
        (each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(result.output)
    }


def test_every_managed_resource_makes_a_pod_ask_for_gpus():
    conditions = POLICIES["scheduler-name"]["spec"]["matchConditions"]
    (asks,) = (each for each in conditions if each["name"] == "asks-for-gpus")

    assert all(f'"{name}"' in asks["expression"] for name in DEFAULT.resources)


def test_carrier_is_no_unknown_name():
    variables = {each["name"]: each for each in POLICIES["requests"]["spec"]["variables"]}

    assert '"slicewise.io/carrier"' in variables["known"]["expression"]


@pytest.mark.parametrize("short", ["marks", "node-name", "agents", "visible-devices"])
def test_policies_that_guard_fail_closed(short):
    assert POLICIES[short]["spec"]["failurePolicy"] == "Fail"


@pytest.mark.parametrize("short", ["scheduler-name", "carrier", "requests"])
def test_policies_that_help_never_stop_a_pod_when_they_break(short):
    assert POLICIES[short]["spec"]["failurePolicy"] == "Ignore"


@pytest.mark.parametrize("short", ["marks", "agents"])
def test_no_namespace_is_left_out_of_what_protects_others(short):
    assert "namespaceSelector" not in POLICIES[short]["spec"]["matchConstraints"]


def test_each_policy_has_a_binding_of_its_kind():
    for short, policy in POLICIES.items():
        binding = build_binding(short, PolicySettings(actions=("Warn", "Audit")))
        assert binding["kind"] == f"{policy['kind']}Binding"
        assert binding["spec"]["policyName"] == policy["metadata"]["name"]
        if policy["kind"].startswith("Validating"):
            assert binding["spec"]["validationActions"] == ["Warn", "Audit"]


def test_command_prints_policies_with_their_bindings():
    printed = print_policies("--namespace", "gpu", "--action", "Warn", "--action", "Audit")

    names = {name for kind, name in printed if kind == "ValidatingAdmissionPolicy"}
    assert names == {
        "slicewise-marks",
        "slicewise-node-name",
        "slicewise-requests",
        "slicewise-agents",
    }
    agents = printed["ValidatingAdmissionPolicy", "slicewise-agents"]
    account = agents["spec"]["matchConditions"][0]["expression"]
    assert '"system:serviceaccount:gpu:slicewise-agent"' in account
    assert ("MutatingAdmissionPolicy", "slicewise-scheduler-name") in printed


def test_older_cluster_is_given_no_mutating_policy():
    printed = print_policies("--scheduler-name", "")

    assert {kind for kind, _ in printed} == {
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
    }  # fmt: skip


def test_claims_are_changed_only_where_the_engine_does_not_do_them():
    spec = POLICIES["claims"]["spec"]

    strange, said = (each["expression"] for each in spec["matchConditions"])
    for word in ("firstAvailable", "allocationMode", "adminAccess", "config", "'cores'"):
        assert word in strange
    assert said.startswith("!(")
    assert all(
        "slicewise.io/engine" in each["jsonPatch"]["expression"] for each in spec["mutations"]
    )
    assert spec["failurePolicy"] == "Ignore"


def test_policy_for_claims_is_printed_when_asked_for():
    name = ("MutatingAdmissionPolicy", "slicewise-claims")

    assert name not in print_policies()
    assert name in print_policies("--claims")
