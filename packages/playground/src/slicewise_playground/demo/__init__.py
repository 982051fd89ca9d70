"""What the demo is made of: its nodes, its page, its output and its check."""
