"""The inbox: messages that are held, handled once, and settled."""
