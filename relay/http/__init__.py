"""The HTTP door: one file per family of routes."""
