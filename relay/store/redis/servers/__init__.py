"""Servers: which there are, which is the master, and the connection to each."""
