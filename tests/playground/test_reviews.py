from slicewise_playground.api.writes import ObjectRef
from slicewise_playground.cluster import Playground, kubeconfig
from slicewise_playground.objects.resources import find

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def test_known_token_names_its_user(playground, client):
    playground.answers.tokens["secret"] = {"username": "ann", "groups": ["dev"]}

    known = client.post(TOKENS, {"spec": {"token": "secret"}}).body["status"]
    unknown = client.post(TOKENS, {"spec": {"token": "other"}}).body["status"]

    assert known == {"authenticated": True, "user": {"username": "ann", "groups": ["dev"]}}
    assert unknown["authenticated"] is False


def test_access_is_what_the_test_decides(playground, client):
    playground.answers.allow = lambda spec: spec.get("user") == "ann"

    allowed = [
        client.post(ACCESS, {"spec": {"user": user}}).body["status"]["allowed"]
        for user in ("ann", "bob")
    ]

    assert allowed == [True, False]


def test_log_of_a_pod_is_what_its_annotation_says(playground, client, pods):
    notes = {"playground.slicewise.io/log": "hello\n"}
    container = {"name": "c", "image": "i"}
    body = {"metadata": {"name": "a", "annotations": notes}, "spec": {"containers": [container]}}
    playground.create("pods", body)

    assert client.get(f"{pods}/a/log").body == "hello\n"


def test_namespace_waits_for_its_pods_and_then_goes(playground):
    playground.create("namespaces", {"metadata": {"name": "ml"}})
    container = {"name": "c", "image": "i"}
    spec = {"containers": [container], "nodeName": "n1"}
    playground.create("pods", {"metadata": {"name": "a", "namespace": "ml"}, "spec": spec})
    playground.create("configmaps", {"metadata": {"name": "m", "namespace": "ml"}})
    playground.delete("namespaces", "ml")
    waiting = playground.get("namespaces", "ml")["status"]["phase"]
    left = playground.objects("configmaps", "ml")

    playground.delete("pods", "a", namespace="ml", grace=0)

    names = [item["metadata"]["name"] for item in playground.objects("namespaces")]
    assert waiting == "Terminating"
    assert left == []
    assert "ml" not in names


def test_kubeconfig_names_the_authority_of_a_tls_server(tmp_path):
    config = kubeconfig("https://127.0.0.1:1", tmp_path / "ca.crt")

    assert config["clusters"][0]["cluster"]["certificate-authority"] == str(tmp_path / "ca.crt")


def test_playground_that_is_not_started_can_be_filled():
    playground = Playground()
    playground.create("nodes", {"metadata": {"name": "n1"}})

    entry = playground.api.get(ObjectRef(find("nodes"), "", "n1"))

    playground.stop()
    assert entry.object["metadata"]["name"] == "n1"
