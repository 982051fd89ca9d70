"""resource.k8s.io/v1: claims and slices of Dynamic Resource Allocation."""
