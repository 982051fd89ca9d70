"""Our messages against protobuf's own, made from the definitions beside this file."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc
from hypothesis import given
from hypothesis import strategies as st

from slicewise.kubelet import podresources as pr
from slicewise.kubelet import v1beta1 as dp
from slicewise.kubelet.codec import WireError, decode, encode, many, number, texts

PROTOS = Path(__file__).parent / "protos"


@dataclass(frozen=True, slots=True)
class ContainerPreference:
    """Which units one container could get, and how many it needs; the plugin prefers none."""

    available: tuple[str, ...] = texts(1)
    must_include: tuple[str, ...] = texts(2)
    size: int = number(3)


@dataclass(frozen=True, slots=True)
class PreferenceRequest:
    """The kubelet asks which units to prefer."""

    containers: tuple[ContainerPreference, ...] = many(1, ContainerPreference)


@dataclass(frozen=True, slots=True)
class PreferredIds:
    ids: tuple[str, ...] = texts(1)


@dataclass(frozen=True, slots=True)
class PreferenceResponse:
    containers: tuple[PreferredIds, ...] = many(1, PreferredIds)


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    """protobuf's classes, by full name."""
    out = tmp_path_factory.mktemp("protos") / "all.bin"
    files = [str(path) for path in sorted(PROTOS.glob("*.proto"))]
    status = protoc.main(["protoc", f"-I{PROTOS}", f"--descriptor_set_out={out}", *files])
    assert status == 0
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file:
        pool.Add(each)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def topology(*nodes):
    return dp.Topology(tuple(map(dp.NumaNode, nodes)))


SAMPLES = [
    ("v1beta1.Empty", dp.Empty()),
    ("v1beta1.DevicePluginOptions", dp.Options(True, False)),
    ("v1beta1.RegisterRequest", dp.RegisterRequest("v1beta1", "a.sock", "x/y", dp.Options(True))),
    ("v1beta1.Device", dp.Device("ü" * 90, "Healthy", topology(0, 1, -1, 1 << 40))),
    ("v1beta1.ListAndWatchResponse", dp.Devices((dp.Device("a", "Unhealthy"), dp.Device("b")))),
    (
        "v1beta1.PreferredAllocationRequest",
        PreferenceRequest((ContainerPreference(("a", "b"), ("a",), 2),)),
    ),
    ("v1beta1.PreferredAllocationResponse", PreferenceResponse((PreferredIds(("a",)),))),
    ("v1beta1.AllocateRequest", dp.AllocateRequest((dp.ContainerAllocateRequest(("1", "2")),))),
    (
        "v1beta1.AllocateResponse",
        dp.AllocateResponse(
            (
                dp.ContainerAllocateResponse(),
                dp.ContainerAllocateResponse(
                    {"A": "1", "B": ""},
                    (dp.Mount("/in", "/out", True),),
                    (dp.DeviceSpec("/dev/a", "/dev/b", "rwm"),),
                    {"n": "m"},
                    (dp.CdiDevice("v/c=d"),),
                ),
            )
        ),
    ),
    ("v1beta1.PreStartContainerRequest", dp.PreStartRequest(("x",) * 300)),
    (
        "v1.ListPodResourcesResponse",
        pr.ListResponse(
            (
                pr.PodResources(
                    "p",
                    "ns",
                    (
                        pr.ContainerResources(
                            "c",
                            (pr.ContainerDevices("x/y", ("1", "2"), topology(1)),),
                            (0, 5, 300),
                            (pr.ContainerMemory("hugepages", 1 << 33),),
                            (
                                pr.DynamicResource(
                                    "claim",
                                    "ns",
                                    (pr.ClaimResource((dp.CdiDevice("d"),), "drv", "pool", "dev"),),
                                ),
                            ),
                        ),
                    ),
                ),
            )
        ),
    ),
    (
        "v1.AllocatableResourcesResponse",
        pr.AllocatableResponse((pr.ContainerDevices("x/y", ("1",)),), (1,)),
    ),
    ("v1.GetPodResourcesRequest", pr.GetRequest("p", "ns")),
]


@pytest.mark.parametrize(("name", "message"), SAMPLES, ids=[name for name, _ in SAMPLES])
def test_message_means_the_same_to_protobuf_and_comes_back_whole(official, name, message):
    theirs = official(name).FromString(encode(message))

    theirs.DiscardUnknownFields()
    assert decode(type(message), theirs.SerializeToString()) == message


@given(
    st.lists(
        st.builds(
            dp.Unit,
            st.text(min_size=1, max_size=200),
            st.booleans(),
            st.none() | st.integers(0, 9),
        ),
        max_size=5,
    )
)
def test_list_of_units_is_what_field_by_field_gives_and_never_larger_than_measured(units):
    devices = tuple(
        dp.Device(
            unit.id,
            dp.HEALTHY if unit.healthy else dp.UNHEALTHY,
            None if unit.numa is None else topology(unit.numa),
        )
        for unit in units
    )
    sick = [dp.Unit(unit.id, False, unit.numa) for unit in units]
    lengths = [len(unit.id.encode()) for unit in units if unit.numa is None]
    plain = [unit for unit in sick if unit.numa is None]

    assert dp.measure_units(Counter(lengths)) == len(dp.encode_units(plain))
    assert dp.encode_units(units) == encode(dp.Devices(devices))
    assert len(dp.encode_units(sick)) >= len(dp.encode_units(units))


def test_unknown_fields_are_skipped():
    data = b"\x48\x07" + b"\x52\x01z" + b"\x59" + bytes(8) + b"\x65" + bytes(4)

    assert decode(dp.Empty, data) == dp.Empty()


@given(st.binary(max_size=60))
def test_bytes_of_strangers_are_a_message_or_a_wire_error(data):
    assert isinstance(outcome(data), pr.ListResponse | WireError)


def outcome(data):
    try:
        return decode(pr.ListResponse, data)
    except WireError as error:
        return error


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x0a\x05ab", id="text-cut-short"),
        pytest.param(b"\x0a", id="length-missing"),
        pytest.param(b"\x08\x01", id="number-for-a-text"),
        pytest.param(b"\x0a\x02\xff\xfe", id="not-utf-8"),
        pytest.param(b"\x0b", id="groups"),
        pytest.param(b"\x48" + b"\xff" * 11, id="endless-number"),
    ],
)
def test_broken_message_is_named(data):
    with pytest.raises(WireError):
        decode(dp.RegisterRequest, data)
