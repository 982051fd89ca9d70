import asyncio
import base64
import json

import pytest
from click.testing import CliRunner

import builders
from conformance.bodies import pod
from kube.lines import client
from slicewise.cli.main import kubectl_plugin as main
from slicewise.dialects import GPUS, write_gpus
from slicewise.dialects.shared.signed_record import SIGNATURE, write_signed_record
from slicewise.model import Allocation, ContainerAllocation, Slice, TrustPolicy
from slicewise.state.trust import SIGNING_SECRET, TRUST_CONFIGMAP, change_keys, change_trust
from slicewise.trust import (
    SigningKey,
    StoredKey,
    TrustDocument,
    read_keyring,
    read_trust,
)
from slicewise_playground.cluster import Playground

OLD, NEW = (StoredKey(SigningKey(bytes([at] * 32)), at * 1000) for at in (1, 2))
NODE = builders.node("a", 2, agent=True)


@pytest.fixture
def cluster():
    with Playground() as made:
        annotations = {GPUS: write_gpus(NODE)}
        made.create("nodes", {"metadata": {"name": "a", "annotations": annotations}})
        yield made


@pytest.fixture
def invoke(cluster, tmp_path):
    path = cluster.write_kubeconfig(tmp_path / "kubeconfig")

    def run(*words):
        return CliRunner().invoke(main, ["trust", *words, "--kubeconfig", str(path)])

    return run


def publish(cluster, *keys, policy=None, held=None):
    async def write():
        async with client(cluster.url) as line:
            await change_keys(line, SIGNING_SECRET, lambda _: keys if held is None else held)
            document = TrustDocument(
                {each.id: each.key.public for each in keys}, policy or TrustPolicy()
            )
            await change_trust(line, TRUST_CONFIGMAP, lambda _: document)

    asyncio.run(write())


def document(cluster):
    return read_trust(cluster.get("configmaps", TRUST_CONFIGMAP[1], TRUST_CONFIGMAP[0])["data"])


def stored(cluster):
    data = cluster.get("secrets", SIGNING_SECRET[1], SIGNING_SECRET[0])["data"]
    return read_keyring({key: base64.b64decode(text) for key, text in data.items()})


def run_pod(cluster, name, key=None):
    limits = {"slicewise.io/cores": "30", "slicewise.io/memory": "4096"}
    made = cluster.create("pods", pod(name, limits=limits))
    given = (ContainerAllocation("main", (Slice(0, 30, 4096),)),)
    text = write_signed_record(Allocation("a", given), NODE, epoch=1, now_ns=1)
    annotations = {"slicewise.io/allocation": text}
    if key is not None:
        annotations[SIGNATURE] = key.key.sign(made["metadata"]["uid"], text)
    cluster.bind(name, "a", annotations=annotations)
    cluster.patch("pods", name, {"status": {"phase": "Running"}}, status=True)


def test_status_counts_pods_by_key_and_names_those_not_believed(cluster, invoke):
    publish(cluster, OLD, NEW)
    run_pod(cluster, "one", OLD)
    run_pod(cluster, "two", NEW)
    run_pod(cluster, "three")

    found = json.loads(invoke("status", "-o", "json").output)

    assert [(each["id"], each["pods"]) for each in found["keys"]] == [(OLD.id, 1), (NEW.id, 1)]
    assert [each["state"] for each in found["keys"]] == [
        "verifies until no pod carries its signature",
        "signs",
    ]
    assert found["pods"] == {"signed": 2, "unsigned": 1}
    assert found["doubtful"] == ["default/three"]


def test_status_for_people_says_the_same(cluster, invoke):
    publish(cluster, OLD, policy=TrustPolicy(original_nodes=("old-*",)))
    run_pod(cluster, "one", OLD)

    output = invoke("status").output

    assert f"{OLD.id}  " in output
    assert "signs" in output
    assert "take-over: never begun" in output
    assert "nodes of original agents: old-*" in output
    assert "1 bound pod with GPUs\n  1 signed" in output


def test_status_without_a_configmap_says_what_to_do(invoke):
    result = invoke("status")

    assert result.exit_code == 1
    assert "ConfigMap kube-system/slicewise-trust does not exist: the extender" in result.output


def test_rotate_adds_a_key_to_the_secret_and_publishes_nothing_itself(cluster, invoke):
    publish(cluster, OLD)

    result = invoke("rotate")

    assert result.exit_code == 0, result.output
    first, second = stored(cluster)
    assert first.id == OLD.id
    assert f"key {second.id} made" in result.output
    assert set(document(cluster).keys) == {OLD.id}


def test_rotate_without_a_secret_says_where_keys_come_from(invoke):
    result = invoke("rotate")

    assert result.exit_code == 1
    assert "Secret kube-system/slicewise-signing: there is no key yet" in result.output


def test_revoke_removes_the_key_everywhere_by_the_beginning_of_its_name(cluster, invoke):
    publish(cluster, OLD, NEW)

    result = invoke("revoke", OLD.id[:6])

    assert result.output == f"key {OLD.id} revoked\n"
    assert set(document(cluster).keys) == {NEW.id}
    assert [each.id for each in stored(cluster)] == [NEW.id]


def test_revoking_the_only_key_makes_a_new_one(cluster, invoke):
    publish(cluster, OLD)

    result = invoke("revoke", OLD.id)

    assert "a new key was made in its place" in result.output
    (made,) = stored(cluster)
    assert made.id != OLD.id
    assert not document(cluster).keys


def test_key_of_another_installation_can_be_revoked(cluster, invoke):
    publish(cluster, OLD, NEW, held=(NEW,))

    assert invoke("revoke", OLD.id).exit_code == 0
    assert set(document(cluster).keys) == {NEW.id}


def test_key_is_not_revoked_where_the_extender_would_publish_it_again(cluster, invoke):
    publish(cluster, OLD, held=())

    result = invoke("revoke", OLD.id)

    assert result.exit_code == 1
    assert "Secret kube-system/slicewise-signing holds no key that is published" in result.output
    assert "--signing-secret" in result.output
    assert set(document(cluster).keys) == {OLD.id}


def test_key_of_a_file_is_revoked_by_its_public_half_alone(cluster, invoke):
    publish(cluster, OLD, held=())

    assert invoke("revoke", OLD.id, "--public-only").exit_code == 0
    assert not document(cluster).keys


def test_unknown_key_is_refused_with_those_there_are(cluster, invoke):
    publish(cluster, OLD)

    result = invoke("revoke", "abc")

    assert result.exit_code == 1
    assert f"KEY 'abc': expected one of {OLD.id}" in result.output


def test_takeover_has_a_beginning_and_an_end(cluster, invoke):
    publish(cluster, OLD)

    assert "take-over begun at " in invoke("take-over", "begin").output
    assert document(cluster).policy.taking_over
    assert "under way already" in invoke("take-over", "begin").output
    assert "take-over ended at " in invoke("take-over", "end").output
    assert not document(cluster).policy.taking_over
    assert "no take-over is under way" in invoke("take-over", "end").output


def test_takeover_with_unsigned_pods_ends_only_by_force(cluster, invoke):
    publish(cluster, OLD, policy=TrustPolicy(4_000_000_000))
    run_pod(cluster, "one")

    result = invoke("take-over", "end")

    assert result.exit_code == 1
    assert "1 running pod not signed yet: default/one" in result.output
    assert "node/a: its pods wait to be signed" in invoke("status").output
    assert invoke("take-over", "end", "--force").exit_code == 0


def test_nodes_of_original_agents_are_added_and_removed(cluster, invoke):
    publish(cluster, OLD)

    added = invoke("original-agents", "add", "old-*", "n7").output
    removed = invoke("original-agents", "remove", "n7").output

    assert added == "nodes of original agents: old-*, n7\n"
    assert removed == "nodes of original agents: old-*\n"
    assert document(cluster).policy.original_nodes == ("old-*",)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("original-agents", "add", "a b"), "NODE 'a b': expected a node's name"),
        (("original-agents", "remove", "n9"), "NODE 'n9': expected one of none"),
    ],
)
def test_bad_node_is_named(cluster, invoke, words, told):
    publish(cluster, OLD)

    result = invoke(*words)

    assert result.exit_code == 1
    assert told in result.output
