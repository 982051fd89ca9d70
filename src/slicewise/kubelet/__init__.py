"""Edge: the kubelet's device plugin and pod-resources interfaces over gRPC."""
