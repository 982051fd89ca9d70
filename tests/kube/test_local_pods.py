import msgspec
import pytest

from slicewise.kube.local_pods import LocalContainer, LocalPod, LocalPodBody, read_local_pod
from slicewise.kube.objects import KeyFilter, ObjectReader
from slicewise.model import Role

ONE = "a1" * 32
HASH = "0123456789abcdef0123456789abcdef"


def read(spec: dict | None = None, status: dict | None = None, **metadata) -> LocalPod:
    body = {
        "metadata": {"uid": "u0", "name": "p0", "namespace": "ml", **metadata},
        "spec": {"containers": [{"name": "c0"}], **(spec or {})},
        "status": status or {},
    }
    decoded = msgspec.json.decode(msgspec.json.encode(body), type=LocalPodBody)
    return read_local_pod(ObjectReader(KeyFilter()), decoded)


def status(name: str = "c0", container_id: str = f"containerd://{ONE}", **state) -> dict:
    return {"name": name, "containerID": container_id, "state": state}


def test_every_kind_of_container_is_listed_with_its_id():
    pod = read(
        {
            "initContainers": [{"name": "first"}, {"name": "side", "restartPolicy": "Always"}],
        },
        {
            "initContainerStatuses": [
                status("first", "containerd://1", terminated={"exitCode": 0}),
                status("side", "cri-o://2", running={"startedAt": "2026-01-01T00:00:00Z"}),
            ],
            "containerStatuses": [status("c0", "docker://3", running={})],
            "ephemeralContainerStatuses": [status("debug", "4", running={})],
        },
    )

    assert pod.containers == (
        LocalContainer("first", Role.INIT, "1", running=False, ended=True, stopped=True),
        LocalContainer("side", Role.SIDECAR, "2", running=True),
        LocalContainer("c0", Role.MAIN, "3", running=True),
        LocalContainer("debug", Role.MAIN, "4", running=True),
    )


@pytest.mark.parametrize("container_id", ["", "containerd://"])
def test_a_container_that_was_not_made_yet_has_no_id(container_id):
    pod = read(status={"containerStatuses": [status(container_id=container_id, waiting={})]})

    assert pod.containers == (LocalContainer("c0"),)


def test_a_pod_without_statuses_lists_its_containers():
    assert read().containers == (LocalContainer("c0"),)


@pytest.mark.parametrize(
    ("policy", "code", "ended"),
    [
        pytest.param("Always", 0, False, id="starts-again-always"),
        pytest.param("OnFailure", 0, True, id="done"),
        pytest.param("OnFailure", 1, False, id="starts-again-after-failing"),
        pytest.param("Never", 1, True, id="failed-for-good"),
    ],
)
def test_a_container_has_ended_when_it_will_not_start_again(policy, code, ended):
    told = {"containerStatuses": [status(terminated={"exitCode": code})]}
    (container,) = read({"restartPolicy": policy}, told).containers

    assert container.ended is ended


def test_static_pods_tell_the_uid_of_their_cgroup():
    annotations = {"kubernetes.io/config.mirror": HASH, "kubernetes.io/config.hash": HASH}

    assert read(annotations=annotations).cgroup == HASH


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({"kubernetes.io/config.hash": HASH}, id="no-mirror"),
        pytest.param(
            {
                "kubernetes.io/config.mirror": "x",
                "kubernetes.io/config.hash": "11111111-2222-3333-4444-555555555555",
            },
            id="uid-of-another-pod",
        ),
    ],
)
def test_an_annotation_cannot_claim_the_cgroup_of_another_pod(annotations):
    assert read(annotations=annotations).cgroup is None


def test_submitter_and_cluster_are_read_where_gpu_manager_reads_them():
    env = [{"name": "HOME", "valueFrom": {}}, {"name": "SUBMITTER", "value": "ada"}]
    pod = read({"containers": [{"name": "c0", "env": env}]}, annotations={"clusterName": "blue"})

    assert (pod.user, pod.cluster) == ("ada", "blue")


def test_claims_are_known_by_their_names_and_by_the_containers_that_use_them():
    pod = read(
        {
            "resourceClaims": [
                {"name": "own", "resourceClaimTemplateName": "t"},
                {"name": "team", "resourceClaimName": "shared"},
            ],
            "containers": [
                {
                    "name": "c0",
                    "resources": {"claims": [{"name": "own", "request": "a"}, {"name": "team"}]},
                },
                {"name": "c1"},
            ],
        },
        {
            "resourceClaimStatuses": [{"name": "own", "resourceClaimName": "p0-own-x"}],
            "extendedResourceClaimStatus": {
                "resourceClaimName": "p0-extended",
                "requestMappings": [
                    {
                        "containerName": "c1",
                        "resourceName": "nvidia.com/gpu",
                        "requestName": "container-1-request-0",
                    }
                ],
            },
        },
    )

    assert sorted(pod.claims) == ["p0-extended", "p0-own-x", "shared"]
    assert pod.uses == (
        ("c0", "p0-own-x", "a"),
        ("c0", "shared", ""),
        ("c1", "p0-extended", "container-1-request-0"),
    )
    assert pod.pod.by_claim
