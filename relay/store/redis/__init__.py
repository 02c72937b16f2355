"""The transport: the only place that knows a socket to Redis."""
