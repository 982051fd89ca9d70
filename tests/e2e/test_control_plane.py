import json
import subprocess
import time

import pytest

from slicewise_testbed.api import ApiError
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.settings import Settings
from slicewise_testbed.testbed import Testbed
from slicewise_testbed.versions import chosen_version

pytestmark = pytest.mark.cluster


def test_control_plane_is_ready_within_fifteen_seconds(kube_binaries):
    with Testbed.start() as bed:
        began = time.monotonic()

        ControlPlane(bed, kube_binaries).start()

        assert time.monotonic() - began < 15


def test_server_and_kubectl_are_the_pinned_version(control_plane):
    versions = json.loads(control_plane.kubectl("version", "-o", "json"))

    assert versions["serverVersion"]["gitVersion"] == chosen_version()
    # One kubectl serves all of them.
    assert versions["clientVersion"]["gitVersion"] == "v1.36.4"


def test_stored_objects_survive_a_killed_api_server(control_plane):
    with control_plane.api() as api:
        api.create("/api/v1/namespaces", {"metadata": {"name": "kept"}})

    control_plane.stop_apiserver()
    control_plane.start_apiserver()

    assert control_plane.kubectl("get", "namespace", "kept", "-o", "name") == "namespace/kept\n"


def test_user_without_rights_is_refused_by_name(control_plane):
    alice = control_plane.api(control_plane.kubeconfig("alice", ["dev"]))

    with alice, pytest.raises(ApiError, match='"alice" cannot list resource "pods"') as refusal:
        alice.get("/api/v1/namespaces/default/pods")

    assert refusal.value.code == 403


def test_audit_log_names_the_user_of_each_request(kube_binaries):
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, Settings(audit="Metadata")).start()
        with plane.api(plane.kubeconfig("bob", ["system:masters"])) as api:
            api.get("/api/v1/nodes")

        uris = [e["requestURI"] for e in plane.audit_events() if e["user"]["username"] == "bob"]

    assert uris == ["/api/v1/nodes"]


def test_helm_sees_the_cluster_and_nothing_of_the_user(control_plane):
    helm = [control_plane.binaries.path("helm"), "list", "--all-namespaces", "-o", "json"]

    listed = subprocess.run(
        helm, env=control_plane.kubectl_environment(), capture_output=True, text=True, check=True
    )

    assert json.loads(listed.stdout) == []
