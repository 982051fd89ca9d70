"""Custom resources and Leases of nvidia-gpu-scheduler v0.2.0."""
