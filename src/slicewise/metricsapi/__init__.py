"""The aggregated metrics API: who holds which card, answered through the API server."""
