"""Requests to keep room on a node for a pod while others are moved away from there."""

from typing import Final

import msgspec

from slicewise.extender.protocol import ProtocolError
from slicewise.httpd import Body
from slicewise.model.bounds import MAX_VICTIMS_PER_NODE


class RoomArgs(msgspec.Struct, rename="pascal", gc=False):
    """The pod that waits, its node to be, and the pods that are to leave it; pods by UID."""

    pod: str
    node: str
    victims: list[str]


_ROOM: Final = msgspec.json.Decoder(RoomArgs)


def decode_room(body: Body) -> RoomArgs:
    """Raises ProtocolError where the body says something else."""
    try:
        args = _ROOM.decode(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"body: {error}") from error
    if not args.victims or len(args.victims) > MAX_VICTIMS_PER_NODE:
        raise ProtocolError(
            f"Victims has {len(args.victims)} pods: expected 1 to {MAX_VICTIMS_PER_NODE}"
        )
    return args
