import pytest

from slicewise_playground.api.protobuf import MAGIC, read_protobuf
from slicewise_playground.objects.errors import ApiError


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number, value):
    """One field: numbers as varints, texts and messages by their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(version, kind, *fields):
    names = field(1, version) + field(2, kind)
    return MAGIC + field(1, names) + field(2, b"".join(fields)) + field(3, "") + field(4, "")


def metadata(name, *more):
    return field(1, field(1, name) + field(3, "") + field(8, b"") + b"".join(more))


def test_names_labels_and_maps_are_read():
    labels = field(11, field(1, "a") + field(2, "b"))
    data = field(2, field(1, "key") + field(2, "text"))

    found = read_protobuf(envelope("v1", "ConfigMap", metadata("m", labels), data))

    assert found == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "m", "labels": {"a": "b"}},
        "data": {"key": "text"},
    }


def test_bytes_become_base64():
    data = field(2, field(1, "key") + field(2, b"\x00\xff"))

    found = read_protobuf(envelope("v1", "Secret", metadata("s"), data))

    assert found["data"] == {"key": "AP8="}


def test_zero_that_means_something_is_kept():
    spec = field(2, field(1, 0) + field(5, 0))

    found = read_protobuf(envelope("apps/v1", "Deployment", metadata("d"), spec))

    assert found["spec"] == {"replicas": 0}


def test_containers_and_amounts_are_read():
    amount = field(1, field(1, "nvidia.com/gpu") + field(2, field(1, "2")))
    container = field(1, "main") + field(2, "busybox") + field(3, "sleep") + field(3, "9")
    container += field(8, amount)
    volume = field(1, field(1, "v") + field(2, field(2, b"")))
    spec = field(2, volume + field(2, container))

    found = read_protobuf(envelope("v1", "Pod", metadata("p"), spec))

    assert found["spec"] == {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [
            {
                "name": "main",
                "image": "busybox",
                "command": ["sleep", "9"],
                "resources": {"limits": {"nvidia.com/gpu": "2"}},
            }
        ],
    }


def test_moments_and_negative_numbers_are_read():
    renewed = field(4, field(1, 1_700_000_000) + field(2, 123_456_000))
    lease = read_protobuf(
        envelope("coordination.k8s.io/v1", "Lease", metadata("l"), field(2, renewed))
    )
    priority = read_protobuf(
        envelope("scheduling.k8s.io/v1", "PriorityClass", metadata("p"), field(2, -5))
    )

    assert lease["spec"] == {"renewTime": "2023-11-14T22:13:20.123456Z"}
    assert priority["value"] == -5


@pytest.mark.parametrize(
    ("mixed", "value"),
    [(field(1, 0) + field(2, 1), 1), (field(1, 1) + field(3, "50%"), "50%")],
)
def test_numbers_or_texts_are_read(mixed, value):
    spec = field(2, field(1, mixed))

    found = read_protobuf(envelope("policy/v1", "PodDisruptionBudget", metadata("b"), spec))

    assert found["spec"] == {"minAvailable": value}


def test_binding_carries_its_annotations():
    note = field(12, field(1, "gpu") + field(2, "0"))
    target = field(2, field(1, "Node") + field(3, "n1"))

    found = read_protobuf(envelope("v1", "Binding", metadata("p", note), target))

    assert found["metadata"]["annotations"] == {"gpu": "0"}
    assert found["target"] == {"kind": "Node", "name": "n1"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{}", "Kubernetes magic number"),
        (envelope("v1", "Gadget"), "kind Gadget"),
        (envelope("v1", "ConfigMap", field(99, "x")), "field 99 of ConfigMap"),
        (envelope("v1", "ConfigMap", b"\x0a\x7f"), "middle of a field"),
        (envelope("v1", "ConfigMap", b"\x0a"), "middle of a number"),
        (envelope("v1", "ConfigMap", field(1, 5)), "number stands"),
        (envelope("v1", "ConfigMap", b"\x0d\x00\x00\x00\x00"), "wire type 5"),
    ],
    ids=["mark", "kind", "field", "cut", "cut-number", "type", "wire-type"],
)
def test_what_cannot_be_read_is_refused_by_name(body, words):
    with pytest.raises(ApiError, match=words) as caught:
        read_protobuf(body)

    assert caught.value.code == 415
