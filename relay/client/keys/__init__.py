"""Keys: what signs, seals and is trusted."""
