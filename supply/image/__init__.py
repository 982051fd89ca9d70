"""The container image, made from Debian packages and wheels without an engine or a registry."""
