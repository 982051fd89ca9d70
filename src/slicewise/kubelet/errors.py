"""What can go wrong between us and the kubelet."""

from slicewise.model import SlicewiseError


class KubeletError(SlicewiseError):
    """The kubelet or the container runtime does not answer, or answers with an error."""


class DeniedError(SlicewiseError):
    """A call of the kubelet that we answer with an error; its text is shown to users."""
