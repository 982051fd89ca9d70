"""The GPUs of the node: their health, and what the Node says of them."""
