"""An API server of custom resources in memory, behind the client's interface."""

import json
from itertools import count
from random import Random

import msgspec

from slicewise.kube.errors import RefusedError

NODES = "/apis/resources.scheduler.caden2016.github.io/v1/namespaces/kube-system/gpunodes"
PODS = NODES.replace("gpunodes", "gpupods")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/nvidia-gpu-scheduler-node-lease/leases"


class CustomServer:
    """Keeps objects by path; main resource and status apart, as with a status subresource."""

    def __init__(self):
        self.objects = {"/api/v1/nodes/n0": {"metadata": {"name": "n0", "uid": "node-uid"}}}
        self.namespaces = set()
        self.writes = []
        self.refusal = None
        self.chance = Random(0)
        self._numbers = count(1)

    async def read(self, call):
        if call.path in self.objects:
            return json.dumps(self.objects[call.path]).encode()
        if call.verb == "list":
            key, _, value = call.query["labelSelector"].partition("=")
            items = [
                each
                for path, each in self.objects.items()
                if path.startswith(f"{call.path}/")
                and each["metadata"].get("labels", {}).get(key) == value
            ]
            return json.dumps({"metadata": {}, "items": items}).encode()
        raise RefusedError(404, "NotFound", call.path)

    read_once = read

    async def send(self, call, body, *, content_type="", seconds=None):
        if self.refusal is not None:
            raise self.refusal
        body = msgspec.to_builtins(body)
        if call.path.startswith(LEASES) and "leases" not in self.namespaces:
            raise RefusedError(404, "NotFound", "namespace")
        if call.resource == "namespaces":
            self.namespaces.add("leases")
            return b"{}"
        self.writes.append((call.verb, call.path.rpartition("/v1/")[2]))
        path = call.path.removesuffix("/status")
        if call.verb == "delete":
            if self.objects.pop(path, None) is None:
                raise RefusedError(404, "NotFound", path)
            return b"{}"
        known = self.objects.get(path)
        if call.path.endswith("/status"):
            known.setdefault("status", {}).update(body["status"])
        else:
            number = next(self._numbers)
            uid = known["metadata"]["uid"] if known else f"uid-{number}"
            kept = {"status": known["status"]} if known and "status" in known else {}
            metadata = {**body["metadata"], "uid": uid, "resourceVersion": str(number)}
            self.objects[path] = {**body, "metadata": metadata, **kept}
        return json.dumps(self.objects[path]).encode()
