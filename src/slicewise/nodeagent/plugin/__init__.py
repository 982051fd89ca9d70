"""Answers the kubelet: which units there are, and what each container receives with its GPUs."""
