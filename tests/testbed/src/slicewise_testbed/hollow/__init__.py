"""Plays the kubelets of all simulated nodes in one process, over plain HTTP.

It does what the rest of a cluster can see a kubelet do: leases renewed, Node status written, pods
brought to Running and to their end, deleted pods confirmed. No container runs.
"""
