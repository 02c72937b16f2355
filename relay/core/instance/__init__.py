"""The instance as a whole: its parts, its clockwork, its readiness and its end."""
