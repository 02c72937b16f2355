"""A durable store-and-forward relay for agents."""
