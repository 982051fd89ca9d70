import struct

from slicewise_testbed.name_server import answer

NAME = b"\x03api\x03sys\x03svc\x07cluster\x05local\x00"


def ask(kind: int) -> bytes:
    return struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + NAME + struct.pack(">HH", kind, 1)


def test_every_address_of_a_name_is_answered() -> None:
    asked = []

    reply = answer(ask(1), lambda name: asked.append(name) or ["10.0.0.7", "10.0.0.8"])

    assert asked == ["api.sys.svc.cluster.local"]
    assert struct.unpack_from(">HHHH", reply) == (7, 0x8580, 1, 2)
    assert reply.endswith(bytes((10, 0, 0, 8)))


def test_unknown_name_is_told_from_one_without_addresses_of_that_kind() -> None:
    unknown, other_kind = answer(ask(1), lambda _: None), answer(ask(28), lambda _: ["10.0.0.7"])

    assert struct.unpack_from(">HHHH", unknown) == (7, 0x8583, 1, 0)
    assert struct.unpack_from(">HHHH", other_kind) == (7, 0x8580, 1, 0)


def test_what_is_no_query_is_not_answered() -> None:
    assert answer(b"\x00" * 5, lambda _: None) == b""
    assert answer(ask(1)[:20], lambda _: None) == b""
