"""Records signed as the extender signs them, for tests that have an agent and no extender."""

import json
from typing import Any

from fakes.signing import KEY, sign
from slicewise_testbed.api import Api
from slicewise_testbed.control_plane import ControlPlane

_CONFIGMAPS = "/api/v1/namespaces/kube-system/configmaps"


def publish_key(plane: ControlPlane) -> None:
    """The agents of this cluster believe the key of the tests."""
    data = {"keys": json.dumps({KEY.id: KEY.public})}
    with plane.api() as api:
        api.create(_CONFIGMAPS, {"metadata": {"name": "slicewise-trust"}, "data": data})


def bind_signed(api: Api, path: str, pod: dict[str, Any], record: dict[str, Any]) -> None:
    """The pod is made, and bound with this record to the node that it names, in one write."""
    body = {**pod, "spec": {**pod["spec"], "schedulerName": "nobody"}}
    made = api.create(path, body)
    meta = {
        "name": pod["metadata"]["name"],
        "annotations": dict(sign(made["metadata"]["uid"], json.dumps(record))),
    }
    target = {"apiVersion": "v1", "kind": "Node", "name": record["node"]}
    api.create(f"{path}/{meta['name']}/binding", {"metadata": meta, "target": target})
