"""The A2A door: agents without an address of their own, spoken to in A2A's JSON-RPC."""
