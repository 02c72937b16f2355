"""Telemetry: logs, metrics and who may scrape them, traces."""
