"""The embedded Kubernetes API, its simulated nodes and the demo, beside the product."""

__version__ = "0.1.0"
