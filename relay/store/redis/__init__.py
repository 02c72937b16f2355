"""The transport: the only place with a socket to Redis."""
