"""What nodes, GPUs and containers use: agents' reports read, joined with the ledger, and shown."""
