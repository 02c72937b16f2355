"""Agents: registration, presence, rates, caps and pauses."""
