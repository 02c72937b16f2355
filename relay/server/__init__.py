"""The server side of connections, HTTP and WebSocket alike: limits, slow and partial input, frames."""
