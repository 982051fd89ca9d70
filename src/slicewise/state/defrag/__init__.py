"""Plans of moves on a live cluster: which pods may move, what a plan is, and carrying it out."""
