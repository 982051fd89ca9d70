"""The embedded Kubernetes API and its simulated nodes, under the demo and the fast tests."""
