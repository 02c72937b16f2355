"""What the relay tells of itself: logs, metrics and who may scrape them, traces."""
