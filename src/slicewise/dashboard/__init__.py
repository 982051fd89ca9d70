"""A read-only page over the same snapshot."""
