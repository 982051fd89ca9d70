"""Scoring functions of the policies: what each node or GPU is worth to a request."""
