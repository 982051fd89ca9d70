"""The front door: flags, settings, logs and wiring."""
