"""Reviews: who a token belongs to and who may do what, as the test or demo decides.

Without a decision every token is anonymous's and everything is allowed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slicewise_playground.objects.resources import ApiResource, Object, find
from slicewise_playground.objects.shapes import check_shape


@dataclass(slots=True)
class ReviewAnswers:
    """The decisions behind tokenreviews and subjectaccessreviews."""

    tokens: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The user of each known token, as in UserInfo."""
    allow: Callable[[Object], bool] = lambda _spec: True
    """Whether a SubjectAccessReview spec is allowed."""
    pods: ApiResource = field(default_factory=lambda: find("pods"))

    def review(self, resource: ApiResource, body: Object) -> Object:
        """The review with its status."""
        check_shape(resource, body)
        spec = body.get("spec") or {}
        if resource.kind == "TokenReview":
            status = self._token(str(spec.get("token") or ""))
        else:
            allowed = self.allow(spec)
            status = {"allowed": allowed} if allowed else {"allowed": False, "reason": "refused"}
        return {
            "kind": resource.kind,
            "apiVersion": resource.group_version,
            "metadata": {"creationTimestamp": None},
            "spec": spec,
            "status": status,
        }

    def _token(self, token: str) -> Object:
        """Who the token belongs to."""
        user = self.tokens.get(token)
        if user is None:
            return {"authenticated": False, "user": {}, "error": "unknown token"}
        return {"authenticated": True, "user": dict(user)}
