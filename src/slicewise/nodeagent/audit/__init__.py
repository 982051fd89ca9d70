"""Collects what an audit compares: the pods, the kubelet, the CDI folder and the driver."""
