"""HTTP: what all operations share; the operations are in routes."""
