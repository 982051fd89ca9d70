"""Who leads: leases, the fence of writes, and Services that lead to the leader."""
