"""What kube-scheduler talks to: filter, prioritize, preempt and bind, from request to reply."""
