"""Requests as kube-scheduler sends them."""

import json

POD_KEYS = {"labels": "labels", "annotations": "annotations"}


def pod(limits=None, name="p0", uid="u0", namespace="default", priority=0, **meta):
    containers = [{"name": "c0", "resources": {"limits": limits or {}}}]
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": uid, **meta},
        "spec": {"containers": containers, "priority": priority},
        "status": {"phase": "Pending"},
    }


def node(name, **more):
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": {"extra": [1, 2]}, **more}


def args(pod, names=None, nodes=None):
    items = None if nodes is None else {"metadata": {}, "items": nodes}
    return json.dumps({"Pod": pod, "Nodes": items, "NodeNames": names}).encode()


def binding(node, name="p0", uid="u0", namespace="default"):
    body = {"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node}
    return json.dumps(body).encode()
