"""A scheduler that only asks: posts filter requests and prints the seconds each answer took."""

import http.client
import json
import sys
import time
from typing import Any, Final

NODES: Final = 5000
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
        for at in range(50)
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
    connection = http.client.HTTPConnection("127.0.0.1", int(port))
    spent = []
    for at in range(int(count)):
        start = time.perf_counter()
        connection.request("POST", "/filter", bodies[at % len(bodies)])
        answer = connection.getresponse().read()
        spent.append(time.perf_counter() - start)
        if not answer.endswith(b'"Error":""}'):
            sys.exit(f"unexpected answer ...{answer[-200:]!r}")
    print(json.dumps({"seconds": spent, "bytes": len(bodies[0])}))


if __name__ == "__main__":
    main(*sys.argv[1:])
