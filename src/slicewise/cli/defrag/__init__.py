"""`slicewise defrag`: moves after which a pod fits that waits now, and carrying them out."""
