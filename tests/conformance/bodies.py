"""Bodies of requests, with only what a test is about."""

from typing import Any


def pod(name: str = "a", **fields: Any) -> dict[str, Any]:
    """A pod of one container; `limits`, `requests` and `metadata` go to their place."""
    resources = {part: fields.pop(part) for part in ("limits", "requests") if part in fields}
    container = {"name": "main", "image": "busybox:1.36", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **fields.pop("metadata", {})},
        "spec": {"containers": [container], **fields},
    }


def config_map(name: str = "a", data: dict[str, str] | None = None, **metadata: Any) -> dict:
    """A config map."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": data or {},
    }


def binding(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    """A binding of a pod to a node."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def deployment(name: str = "web", **spec: Any) -> dict[str, Any]:
    """A deployment of one container."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "busybox:1.36"}]},
            },
            **spec,
        },
    }
