"""Edge: listing, watching, binding and patching against the API server.

Raw Kubernetes JSON stops here; model values go inward.
"""
