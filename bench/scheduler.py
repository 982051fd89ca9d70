"""A scheduler that only asks: posts filter requests and prints the seconds each answer took."""

import json
import re
import socket
import sys
import time
from typing import Any, Final

NODES: Final = 5000
_HEAD: Final = (
    b"POST /filter HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)
_SIZES: Final = (5, 11, 22, 32, 47, 65, 81, 100)


def build_bodies(form: str) -> list[bytes]:
    """Requests that name 5,000 nodes, or carry them whole: 57 MB, as real Node objects weigh."""
    names = [f"node-{at:05}" for at in range(NODES)]
    if form == "names":
        return [_body(percent, NodeNames=names, Nodes=None) for percent in _SIZES]
    nodes = {"metadata": {}, "items": [_node(name) for name in names]}
    return [_body(32, NodeNames=None, Nodes=nodes)]


def _body(percent: int, **nodes: Any) -> bytes:
    limits = {"slicewise.io/cores": str(percent), "slicewise.io/memory": str(128 * percent)}
    if percent == 100:
        limits = {"slicewise.io/gpu": "1"}
    pod = {
        "metadata": {"name": "asked", "namespace": "bench", "uid": "asked"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }
    return json.dumps({"Pod": pod, **nodes}, separators=(",", ":")).encode()


def _node(name: str) -> dict[str, Any]:
    """A node with the labels, conditions and images that make real ones large."""
    images = [
        {
            "names": [f"registry.example/team/{at}@sha256:{at:064x}", f"registry.example/{at}:v1"],
            "sizeBytes": 123456789 + at,
        }
        for at in range(56)
    ]
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {f"example.com/label-{at}": f"value-{at}" for at in range(30)},
            "annotations": {f"example.com/note-{at}": "n" * 60 for at in range(10)},
        },
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"cloud:///{name}"},
        "status": {
            "capacity": {"cpu": "128", "memory": "792723456Ki", "slicewise.io/gpu": "8"},
            "conditions": [
                {"type": f"Condition{at}", "status": "False", "message": "nothing is wrong here"}
                for at in range(6)
            ],
            "images": images,
            "nodeInfo": {"kernelVersion": "6.1", "osImage": "Linux"},
        },
    }


def main(port: str, form: str, count: str) -> None:
    """Ask so many times and print every answer's seconds."""
    bodies = build_bodies(form)
    line = socket.create_connection(("127.0.0.1", int(port)))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    room = bytearray(max(map(len, bodies)) + (1 << 20))
    spent = []
    for at in range(int(count)):
        body = bodies[at % len(bodies)]
        head = _HEAD % len(body)
        start = time.perf_counter()
        line.sendall(head)
        line.sendall(body)
        end = _receive(line, room)
        spent.append(time.perf_counter() - start)
        if not room[:end].endswith(b'"Error":""}'):
            sys.exit(f"unexpected answer ...{bytes(room[:end][-200:])!r}")
    print(json.dumps({"seconds": spent, "bytes": len(bodies[0])}))


def _receive(line: socket.socket, room: bytearray) -> int:
    """Read one answer into the room and give the place of its end."""
    view, have, need = memoryview(room), 0, -1
    while need < 0 or have < need:
        got = line.recv_into(view[have:])
        if not got:
            sys.exit("the extender hung up")
        have += got
        if need < 0 and (head := room.find(b"\r\n\r\n", 0, have)) >= 0:
            length = re.search(rb"content-length: (\d+)", room[:head])
            need = head + 4 + int(length[1] if length else 0)
    return have


if __name__ == "__main__":
    main(*sys.argv[1:])
