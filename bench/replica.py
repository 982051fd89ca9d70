"""A large cluster's API, played back over real HTTP: `python -m bench.replica NODES PODS`.

Objects are as large as those of real clusters, with all that nobody here reads. Lists come in
pages; watches end in time with a bookmark.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from bench.cluster import GPUS
from slicewise.cli.render.logs import configure_plain_logs
from slicewise.dialects import ALLOCATION, write_gpus
from slicewise.dialects.shared.signed_record import SIGNATURE
from slicewise.httpd import HttpRequest, HttpResponse, Server, ServerSettings, Stream
from slicewise.model import Gpu, MiB, Node
from slicewise.state.trust import TRUST_CONFIGMAP
from slicewise.trust import SigningKey, TrustDocument, write_trust

MEMORY: Final = 40960
SHARE: Final = 10240
KEY: Final = SigningKey(bytes(32))
_WRITTEN: Final = msgspec.json.encode
# Of twenty pods on a node twelve hold a quarter of a GPU, in three dialects in turn.
_ON_A_NODE: Final = 20
_WITH_GPU: Final = 12


def gpu_uuid(node: int, gpu: int) -> str:
    """The UUID of a made-up GPU."""
    return f"GPU-{node:08x}-0000-0000-0000-{gpu:012x}"


def node_body(number: int) -> dict[str, Any]:
    """A node of about eleven kilobytes, most of it names of images."""
    name = f"node-{number:05d}"
    gpus = tuple(
        Gpu(at, gpu_uuid(number, at), "NVIDIA A100-SXM4-40GB", MiB(MEMORY), at)
        for at in range(GPUS)
    )
    amounts = {
        "cpu": "128",
        "memory": "1056461308Ki",
        "pods": "110",
        "ephemeral-storage": "1843202612Ki",
        "nvidia.com/vcuda-core": str(100 * GPUS),
    }
    images = [
        {
            "names": [f"registry.example.org/team-{at}/image@sha256:{at:064x}", f"image-{at}:v1"],
            "sizeBytes": 1234567890 + at,
        }
        for at in range(45)
    ]
    return {
        "metadata": {
            "name": name,
            "uid": f"00000000-0000-4000-8000-{number:012x}",
            "resourceVersion": str(1000 + number),
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": f"zone-{number % 3}",
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
            },
            "annotations": {
                "slicewise.io/gpus": write_gpus(Node(name, gpus)),
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"example://{name}"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "images": images,
            "conditions": [_condition(kind) for kind in ("MemoryPressure", "Ready")],
        },
    }


def pod_body(number: int) -> dict[str, Any]:
    """A pod of about five kilobytes, bound, running, marked and signed."""
    node, at = divmod(number, _ON_A_NODE)
    uid = f"11111111-0000-4000-8000-{number:012x}"
    limits, annotations = _gpu_part(node, at) if at < _WITH_GPU else ({}, {})
    if annotations:
        annotations |= _signed_part(node, at, uid)
    return {
        "metadata": {
            "name": f"trainer-{number:06d}-7d9c6b5f4-x{number % 97:02d}z",
            "namespace": f"team-{number % 40}",
            "uid": uid,
            "resourceVersion": str(1_000_000 + number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": f"trainer-{number % 1000}", "pod-template-hash": "7d9c6b5f4"},
            "annotations": annotations | {"cni.projectcalico.org/podIP": "10.1.2.3/32"},
            "managedFields": [_field_set(manager) for manager in ("controller", "kubelet")],
        },
        "spec": {
            "nodeName": f"node-{node:05d}",
            "priority": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.org/team/trainer:v1.2.3",
                    "resources": {
                        "limits": limits,
                        "requests": limits | {"cpu": "2", "memory": "4Gi"},
                    },
                    "env": [{"name": f"SETTING_{n}", "value": "x" * 24} for n in range(12)],
                    "volumeMounts": [{"name": "data", "mountPath": f"/d{n}"} for n in range(6)],
                }
            ],
            "volumes": [{"name": f"v{n}", "configMap": {"name": f"c{n}"}} for n in range(6)],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.1.2.3",
            "conditions": [_condition(kind) for kind in ("Ready", "Initialized", "PodScheduled")],
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": True,
                    "restartCount": 0,
                    "image": "registry.example.org/team/trainer:v1.2.3",
                    "imageID": f"sha256:{number:064x}",
                }
            ],
        },
    }


def _gpu_part(node: int, at: int) -> tuple[dict[str, str], dict[str, str]]:
    """Limits and record of a quarter of a GPU, as one of three systems writes them."""
    gpu = at % GPUS
    if at % 3 == 0:
        units = {"nvidia.com/vcuda-core": "25", "nvidia.com/vcuda-memory": str(SHARE)}
        record = {
            "nvidia.com/predicate-gpu-idx-0": str(gpu),
            "nvidia.com/predicate-node": f"node-{node:05d}",
            "nvidia.com/gpu-assigned": "true",
            "nvidia.com/predicate-time": "1767225600000000000",
        }
        return units, record
    if at % 3 == 1:
        units = {"aliyun.com/gpu-mem": "10"}
        record = {
            "ALIYUN_COM_GPU_MEM_IDX": str(gpu),
            "ALIYUN_COM_GPU_MEM_DEV": "40",
            "ALIYUN_COM_GPU_MEM_POD": "10",
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
            "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1767225600000000000",
        }
        return units, record
    units = {"slicewise.io/cores": "25", "slicewise.io/memory": str(SHARE)}
    return units, {"slicewise.io/policy": "default"}


def _signed_part(node: int, at: int, uid: str) -> dict[str, str]:
    """Our record beside the system's own, and its signature."""
    gpu, cores = at % GPUS, 0 if at % 3 == 1 else 25
    written = {
        "at": 1767225600000000000,
        "containers": {"main": [[gpu, gpu_uuid(node, gpu), cores, SHARE]]},
        "epoch": 1767225600,
        "node": f"node-{node:05d}",
    }
    text = _WRITTEN(written).decode()
    return {ALLOCATION: text, SIGNATURE: KEY.sign(uid, text)}


def trust_body(_: int) -> dict[str, Any]:
    """The ConfigMap with the key that everything was signed with."""
    namespace, name = TRUST_CONFIGMAP
    metadata = {"name": name, "namespace": namespace, "resourceVersion": "999"}
    return {"metadata": metadata, "data": write_trust(TrustDocument({KEY.id: KEY.public}))}


def _condition(kind: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": "True",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": f"{kind}IsAsItShouldBe",
        "message": "everything is as it should be on this machine",
    }


def _field_set(manager: str) -> dict[str, Any]:
    names = [f'k:{{"type":"Condition{at}"}}' for at in range(12)]
    fields: dict[str, Any] = {name: {".": {}, "f:status": {}} for name in names}
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {"f:conditions": fields}},
    }


class Replica:
    """Answers lists page by page, made once and kept as bytes where that is cheap."""

    def __init__(self, nodes: int, pods: int) -> None:
        maps = f"/api/v1/namespaces/{TRUST_CONFIGMAP[0]}/configmaps"
        self._counts = {"/api/v1/nodes": nodes, "/api/v1/pods": pods, maps: 1}
        self._bodies = {"/api/v1/nodes": node_body, "/api/v1/pods": pod_body, maps: trust_body}
        self.pages: dict[tuple[str, int, int], bytes] = {}

    def prepare(self, limit: int) -> None:
        """Encode every page beforehand, so that only sending them is left."""
        for path, count in self._counts.items():
            for start in range(0, count, limit):
                self._page(path, start, limit)

    async def __call__(self, request: HttpRequest) -> HttpResponse | Stream:
        """One page, or a watch in which nothing happens."""
        if "watch" in request.query:
            return Stream(_wait_out(float(request.query.get("timeoutSeconds") or 3600)))
        start = int(request.query.get("continue") or 0)
        return HttpResponse(200, self._page(request.path, start, int(request.query["limit"])))

    def _page(self, path: str, start: int, limit: int) -> bytes:
        key = (path, start, limit)
        if key not in self.pages:
            count = self._counts.get(path, 0)
            stop = min(count, start + limit)
            metadata = {"resourceVersion": "2000000"}
            if stop < count:
                metadata["continue"] = str(stop)
            items = [self._bodies[path](number) for number in range(start, stop)]
            self.pages[key] = _WRITTEN({"metadata": metadata, "items": items})
        return self.pages[key]


async def _wait_out(seconds: float) -> AsyncIterator[bytes]:
    await asyncio.sleep(seconds)
    yield b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"2000000"}}}\n'


async def serve(nodes: int, pods: int) -> None:
    """Serve until the standard input ends."""
    replica = Replica(nodes, pods)
    replica.prepare(500)
    server = Server(replica, ServerSettings())
    await server.start()
    print(server.url, sum(map(len, replica.pages.values())), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop()


if __name__ == "__main__":
    configure_plain_logs()
    asyncio.run(serve(*map(int, sys.argv[1:3])))
