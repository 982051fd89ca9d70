"""Pages and metrics under the names that users of gpu-manager and elastic-gpu have."""
