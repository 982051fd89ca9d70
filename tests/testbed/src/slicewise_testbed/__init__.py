"""A real Kubernetes cluster on one machine: control plane, real nodes, simulated nodes.

It knows nothing of Slicewise: what it starts is plain Kubernetes, driven through its own binaries.
"""
