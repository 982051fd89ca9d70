"""Every exception Slicewise raises on purpose.

"It does not fit" is never one of these: that is a Refusal.
"""


class SlicewiseError(Exception):
    """Anything that Slicewise itself reports as wrong."""


class QuantityError(SlicewiseError):
    """A Kubernetes quantity that cannot be read as a whole number."""


class DialectError(SlicewiseError):
    """A pod or node that says something its dialect does not allow."""


class InventoryError(SlicewiseError):
    """A node whose list of GPUs contradicts itself."""


class PolicyError(SlicewiseError):
    """A policy that names no known scoring function, or weighs it absurdly."""


class QuotaError(SlicewiseError):
    """A quota document that cannot be read."""


class TraceError(SlicewiseError):
    """A trace file that cannot be replayed."""
