"""The aggregated metrics API: who holds which GPU, answered through the API server."""
