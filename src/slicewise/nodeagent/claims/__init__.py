"""GPUs by ResourceClaim: what the node offers, and what its containers receive."""
