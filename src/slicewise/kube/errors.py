"""How talking to an API server fails: it refused, it was not reached, or its answer was lost."""

from slicewise.model import SlicewiseError


class KubeError(SlicewiseError):
    """Anything that goes wrong between us and the API server."""


class AccessError(KubeError):
    """A kubeconfig or service account that does not say how to reach the API server."""


class RefusedError(KubeError):
    """The API server answered, and not with success."""

    def __init__(
        self, code: int, reason: str, message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(f"{code} {reason}: {message}" if reason else f"{code}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def retryable(self) -> bool:
        """Whether the same request may well succeed later."""
        return self.code in (408, 429) or self.code >= 500

    @property
    def missing(self) -> bool:
        return self.code == 404

    @property
    def expired(self) -> bool:
        """Whether the resourceVersion or page that was asked for is no longer kept."""
        return self.code == 410


class UnreachedError(KubeError):
    """No connection was made, so the request was surely not carried out."""


class FencedError(UnreachedError):
    """We no longer lead, or not for long enough, so the write was not sent."""


class TooLargeError(KubeError):
    """The answer was larger than the caller wants it, and was not read to its end."""


class RestoredError(KubeError):
    """The API server's data are older than what it told before, as after a backup was restored."""


class LostError(KubeError):
    """The request was sent and its answer never came whole; it may have been carried out."""
