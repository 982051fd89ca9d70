"""Pods for the tests on a real cluster."""

from typing import Any

PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """A pod of one container that runs nowhere in particular until told otherwise."""
    annotations = spec.pop("annotations", {})
    limits = spec.pop("limits", {})
    command = spec.pop("command", None)
    container = {
        "name": "main",
        "image": "busybox:local",
        "imagePullPolicy": "Never",
        "resources": {"limits": {"cpu": "100m", "memory": "32Mi", **limits}},
        **({"command": command} if command else {}),
    }
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            **spec,
        },
    }


def in_phase(*phases: str):
    """Whether a pod is in one of these phases."""
    return lambda found: found.get("status", {}).get("phase") in phases
