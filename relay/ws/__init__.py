"""WebSocket: sockets, handshake, closing."""
