"""The edge to the API server: list, watch, mark and bind."""
