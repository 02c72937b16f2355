"""Watching: what operators, workers and the doctor read of the store."""
