"""What people read: escaped text, tables and log lines."""
