"""A read-only page over the cluster's state: who holds what, how well it is, who waits and why."""
