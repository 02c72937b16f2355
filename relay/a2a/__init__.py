"""A2A: agents without an address of their own, spoken to in A2A's JSON-RPC."""
