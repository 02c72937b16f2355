"""A2A: agents behind the relay, reached by A2A's JSON-RPC."""
