"""Names that go into the path of a request, so that no name leads to another path.

Names come from clients of the extender; a pod called `../../nodes/n1` must never turn a
write to a pod into a write to a node.
"""

import re
from typing import Final

from slicewise.kube.errors import KubeError

# Longer than any object's name may be, so that no error message grows with what was sent.
_LONGEST: Final = 253
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


class BadNameError(KubeError):
    """A name that no object of Kubernetes can have."""


def is_name(text: str) -> bool:
    return len(text) <= _LONGEST and _NAME.fullmatch(text) is not None and ".." not in text


def pod_path(namespace: str, name: str) -> str:
    """The path of a pod; raises when such a pod cannot be."""
    for text in (namespace, name):
        if not is_name(text):
            raise BadNameError(f"pod {namespace[:80]!r}/{name[:80]!r}: expected names")
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
