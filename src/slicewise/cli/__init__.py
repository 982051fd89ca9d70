"""The front door: one file per command, the options and logs they share, and rendering."""
