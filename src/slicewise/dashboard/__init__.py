"""A read-only page of the cluster: who holds what, what is unhealthy, who waits and why."""
