from datetime import UTC, datetime

import pytest

from slicewise_playground.api.negotiation import negotiate, wants_aggregated
from slicewise_playground.api.printer_cells import node_roles, node_status, pod_status
from slicewise_playground.api.printer_tables import age, duration
from slicewise_playground.objects.errors import ApiError
from slicewise_playground.objects.patches import apply_json_patch, merge
from slicewise_playground.objects.selectors import selector_of
from slicewise_playground.objects.strategic_merge import strategic_merge

PARTIAL = "PartialObjectMetadata"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (10 * 3600, "10h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (20 * 86400, "20d"),
        (800 * 86400, "2y70d"),
        (3000 * 86400, "8y"),
    ],
)
def test_durations_read_as_in_kubectl(seconds, text):
    assert duration(seconds) == text


def test_age_counts_from_a_stamp():
    now = datetime(2026, 1, 1, 0, 5, tzinfo=UTC)

    assert age("2026-01-01T00:00:00Z", now) == "5m"
    assert age(None, now) == "<unknown>"


def pod(phase="Pending", state=None, **metadata):
    statuses = [{"state": state}] if state else []
    return {
        "metadata": metadata,
        "spec": {},
        "status": {"phase": phase, "containerStatuses": statuses},
    }


@pytest.mark.parametrize(
    ("row", "word"),
    [
        (pod(), "Pending"),
        (pod("Running"), "Running"),
        (pod("Running", deletionTimestamp="now"), "Terminating"),
        (pod("Pending", {"waiting": {"reason": "ErrImagePull"}}), "ErrImagePull"),
        (pod("Succeeded", {"terminated": {"reason": "Completed"}}), "Completed"),
        (pod("Failed", {"terminated": {"exitCode": 3}}), "ExitCode:3"),
        (pod("Succeeded", deletionTimestamp="now"), "Succeeded"),
    ],
)
def test_status_of_a_pod_in_one_word(row, word):
    assert pod_status(row) == word


def test_node_words():
    node = {"metadata": {"labels": {"node-role.kubernetes.io/gpu": ""}}, "status": {}}

    assert node_status(node) == "Unknown"
    assert node_roles(node) == "gpu"


@pytest.mark.parametrize(
    ("accept", "shape"),
    [
        ("", ""),
        ("*/*", ""),
        ("application/vnd.kubernetes.protobuf,application/json", ""),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "Table"),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", ""),
        (f"application/json;as={PARTIAL}List;g=meta.k8s.io;v=v1", PARTIAL),
    ],
)
def test_first_view_that_can_be_sent_is_chosen(accept, shape):
    assert negotiate(accept).shape == shape


def test_protobuf_alone_is_not_acceptable():
    with pytest.raises(ApiError) as caught:
        negotiate("application/vnd.kubernetes.protobuf")

    assert caught.value.code == 406


def test_only_the_newest_aggregated_discovery_is_offered():
    form = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"

    assert wants_aggregated(form.format("v2"))
    assert not wants_aggregated(form.format("v2beta1"))


def test_merge_patch_follows_the_standard():
    target = {"a": "b", "c": {"d": "e", "f": "g"}}

    assert merge(target, {"a": "z", "c": {"f": None}}) == {"a": "z", "c": {"d": "e"}}
    assert merge({"a": [1]}, {"a": {"b": None}}) == {"a": {}}
    assert target == {"a": "b", "c": {"d": "e", "f": "g"}}


def test_json_pointer_escapes_are_read():
    patch = [{"op": "replace", "path": "/a~1b~0c", "value": 2}]

    assert apply_json_patch({"a/b~c": 1}, patch) == {"a/b~c": 2}


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "add", "path": "/a/9", "value": 1}],
        [{"op": "replace", "path": "/b", "value": 1}],
        [{"op": "move", "from": "/b", "path": "/c"}],
        [{"op": "test", "path": "/a", "value": []}],
        [{"op": "add", "path": "a", "value": 1}],
    ],
)
def test_json_patch_that_does_not_fit_is_refused(patch):
    with pytest.raises(ApiError) as caught:
        apply_json_patch({"a": [1]}, patch)

    assert caught.value.code == 422


@pytest.mark.parametrize("patch", [{"op": "add"}, [{"op": "burn", "path": "/a"}], [{"op": "add"}]])
def test_json_patch_that_is_none_is_unreadable(patch):
    with pytest.raises(ApiError) as caught:
        apply_json_patch({}, patch)

    assert caught.value.code == 400


def test_strategic_patch_leaves_no_directive_behind():
    patch = {"spec": {"containers": [{"name": "b", "env": [{"name": "X", "$patch": "delete"}]}]}}

    merged = strategic_merge({"spec": {"containers": [{"name": "a"}]}}, patch)

    assert merged == {"spec": {"containers": [{"name": "a"}, {"name": "b", "env": []}]}}


def test_unknown_directive_is_named():
    with pytest.raises(ApiError, match="explode"):
        strategic_merge({}, {"$patch": "explode"})


def test_label_selector_object_as_text():
    selector = {
        "matchLabels": {"a": "b"},
        "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["d", "e"]},
            {"key": "f", "operator": "DoesNotExist"},
        ],
    }

    assert selector_of(selector) == "a=b,c in (d,e),!f"
