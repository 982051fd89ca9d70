"""Evicting pods, and what must be known of them before."""
