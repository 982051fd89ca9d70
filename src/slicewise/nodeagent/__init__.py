"""Joins driver, kubelet and API server on one node, so that containers get their GPUs."""
