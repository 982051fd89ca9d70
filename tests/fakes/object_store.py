"""API objects in memory behind the client's interface: versions, conflicts, and requests lost."""

import json
import random
from enum import Enum

from slicewise.kube.errors import LostError, RefusedError


class Loss(Enum):
    """What becomes of a request."""

    NONE = "none"
    REQUEST = "request"
    ANSWER = "answer"


class ObjectStore:
    """What Election, FollowedLease and LeaderEndpoints need of a client."""

    def __init__(self):
        self.objects = {}
        self.version = 0
        self.loss = Loss.NONE
        self.chance = random.Random(0)
        self.writes = []

    async def read_once(self, call, *, seconds=None):
        self._lose(Loss.REQUEST)
        if call.path not in self.objects:
            raise RefusedError(404, "NotFound", call.path)
        self._lose(Loss.ANSWER)
        return json.dumps(self.objects[call.path]).encode()

    read = read_once

    async def send(self, call, body, *, seconds=None):
        self._lose(Loss.REQUEST)
        path = call.path
        if call.verb == "create":
            path = f"{call.path}/{body['metadata']['name']}"
            if path in self.objects:
                raise RefusedError(409, "AlreadyExists", path)
        elif path not in self.objects:
            raise RefusedError(404, "NotFound", path)
        elif body["metadata"]["resourceVersion"] != self.read_version(path):
            raise RefusedError(409, "Conflict", path)
        self.put(path, body)
        self.writes.append((call.verb, path))
        self._lose(Loss.ANSWER)
        return json.dumps(self.objects[path]).encode()

    def read_version(self, path):
        return self.objects[path]["metadata"]["resourceVersion"]

    def put(self, path, body):
        """Store an object as somebody else would."""
        self.version += 1
        stored = json.loads(json.dumps(body))
        stored["metadata"]["resourceVersion"] = str(self.version)
        self.objects[path] = stored

    def _lose(self, which):
        if self.loss is which:
            raise LostError(f"{which.value} lost")
