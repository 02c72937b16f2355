"""Benchmarks: real clients against real instances on this machine."""
