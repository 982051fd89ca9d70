import json

import pytest

from slicewise.explain.manifests import ManifestError, parse_documents, read_manifests

POD = {"containers": [{"name": "c"}]}


def workload(kind, **spec):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
    return {"kind": kind, "metadata": {"name": "w"}, "spec": {"template": template, **spec}}


def test_items_of_a_typed_list_have_its_kind():
    text = json.dumps({"kind": "PodList", "items": [{"metadata": {"name": "p"}}]})

    (found,) = parse_documents("f.json", text)

    assert (found["kind"], found["metadata"]["name"]) == ("Pod", "p")


@pytest.mark.parametrize(
    ("document", "counts"),
    [
        pytest.param(workload("Deployment", replicas=3), (3, 3), id="replicas"),
        pytest.param(workload("Job", completions=8, parallelism=2), (2, 8), id="two-at-a-time"),
        pytest.param(workload("StatefulSet"), (1, 1), id="none-named"),
    ],
)
def test_pods_are_counted_at_a_time_and_in_total(document, counts):
    (template,) = read_manifests("f.yaml", json.dumps(document)).templates

    assert (template.count, template.total) == counts


def test_objects_that_make_no_pods_are_passed_over():
    assert read_manifests("f.yaml", "kind: Secret\n---\nkind: ConfigMap\n").templates == []


def test_text_that_is_no_yaml_names_its_file():
    with pytest.raises(ManifestError, match=r"cannot read f\.yaml: not YAML"):
        read_manifests("f.yaml", "a: [")
