"""Asking an extender as people do: at an address, behind a Service, or built in this process."""
